"""The engine: jobs, batches, KV in blocks, and the thread that runs the forward passes.

Reading order: ``job`` (one call's work), ``engine`` (the thread), ``pulse`` (whether it hangs);
``blocks`` and ``block_registry`` (who uses which block), ``kv_store`` (the tensors),
``paged_sequence`` (a prefix and its tree in blocks), ``forward_plan`` and ``batch`` (what goes
through one forward pass); ``heads`` (drafts from the target's hidden states).
"""
