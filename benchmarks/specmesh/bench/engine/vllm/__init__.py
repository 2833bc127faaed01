"""``specmesh bench engine --backend vllm``: verifications by vLLM, compared with its own decoding
steps and with our engine.

It runs in vLLM's environment. Reading order: ``sessions`` (the verifications), ``programs`` (the
programs that compute them, each in its own process), ``measure``, ``report``.
"""
