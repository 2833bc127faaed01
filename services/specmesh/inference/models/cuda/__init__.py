"""Forward passes on a GPU: attention over KV in blocks, compiled layers, and CUDA graphs."""
