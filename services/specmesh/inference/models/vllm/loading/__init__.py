"""Loading a model into vLLM, and the checks that belong to it."""
