"""The parts that the tools and benchmarks share.

Reading order: ``experiment`` (the runs to compare), ``bench`` (a mesh for them), ``setting``
(models, options and cores), ``tables``; ``traced`` (a mesh whose traces are kept), ``prompts`` and
``options``.
"""
