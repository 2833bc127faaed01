"""Reports as one HTML file that needs no network; docs/load.md describes it.

Python decides what the page says (``contents``, ``facts``, ``verdict``), and the files of
``assets`` how it looks; ``document`` combines both into one file.
"""
