"""vLLM's workers on several nodes, in a Ray cluster."""
