"""What drafter and verifier processes share around a model: settings, lifecycle, prefixes,
costs."""
