"""Running language models: what a drafter or verifier process computes with.

``model`` is the interface; ``transformers_model``, ``ngram``, ``prompt_lookup`` and
``synthetic`` implement it; ``prefix_cache`` keeps what was computed for live prefixes;
``engine`` is the one thread that runs forwards.
"""
