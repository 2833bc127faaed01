"""The engine: jobs, batches, KV in blocks, and the thread that runs the forward passes.

Reading order: ``job`` (one call's work), ``engine`` (the thread), ``pulse`` (detects a hang);
``blocks`` (which sequence uses which block), ``kv_store`` (the tensors), ``kv_memory`` (both
together), ``paged_sequence`` (a prefix and its tree in blocks),
``forward_plan`` and ``batch`` (the contents of one forward pass); ``heads`` (drafts from the
target's hidden states).
"""
