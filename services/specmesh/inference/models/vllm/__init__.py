"""vLLM as an engine behind Verify: it schedules, keeps KV and computes; what a token is chosen by
and which tokens are accepted stays ours.

Reading order: ``model`` (our side), ``core`` (vLLM's, and what a step of it gives), ``rows`` (what
its workers do differently), ``scheduler`` (what its scheduler does differently), ``seen`` (prefixes
by name), ``versions``; ``ray_cluster`` and ``ray_on_cpus`` where vLLM's processes run in Ray.
None of these interfaces of vLLM's is public, so its version is pinned.
"""
