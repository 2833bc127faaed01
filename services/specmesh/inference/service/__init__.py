"""Code around a model that drafter and verifier processes share: settings, lifecycle, prefixes,
costs."""
