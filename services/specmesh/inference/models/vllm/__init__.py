"""vLLM as an engine behind Verify: vLLM schedules, keeps KV and computes; specmesh still chooses
tokens and accepts or rejects drafts.

Reading order: ``model`` (the ``LanguageModel``), ``core`` (vLLM's engine core and its steps),
``rows`` (changes to vLLM's workers), ``scheduler`` (changes to its scheduler), ``seen`` (prefixes
by digest), ``versions``; ``ray`` if vLLM's processes run in Ray. None of these vLLM interfaces is
public, so vLLM's version is pinned.
"""
