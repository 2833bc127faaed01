"""Reports as one HTML file that needs no network; docs/load.md says what it shows.

Python decides what the page says (``contents``, ``facts``, ``verdict``), the files of ``assets``
how it looks; ``document`` puts both in one file.
"""
