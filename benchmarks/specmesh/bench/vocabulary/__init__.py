"""``specmesh bench vocabulary``: what a vocabulary of a real model's size, and a long context, cost
a mesh and the engine from end to end.

Reading order: ``__main__``, ``meshes`` (simulated models with a small and a large vocabulary),
``context`` (a long prompt), ``engines`` (a random model in our engine and in vLLM), ``report``.
"""
