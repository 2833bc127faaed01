"""Verifications that vLLM computes, beside its own decoding steps and beside our engine:
``specmesh bench engine --backend vllm``, in vLLM's environment.

Reading order: ``sessions`` (what is verified), ``programs`` (who computes it, each in a process of
its own), ``measure``, ``report``.
"""
