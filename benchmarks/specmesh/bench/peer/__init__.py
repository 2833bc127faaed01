"""``specmesh bench vllm``: a mesh beside vLLM, which decodes the same prompts by itself.

It runs in vLLM's environment. Reading order: ``plan``, ``vllm_alone`` (vLLM, in a process of its
own), ``rounds`` (the turns), ``report``.
"""
