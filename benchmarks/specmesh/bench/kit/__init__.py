"""What benchmarks share. One of them describes its runs, concludes, and says how that looks.

Reading order: ``experiment`` (what is asked, in turns), ``bench`` (a mesh, the runs, an end),
``setting`` (on what it ran), ``tables``; ``traced`` (a mesh whose traces are kept), ``prompts``
and ``options``.
"""
