"""What drafter and verifier processes share around a model: settings, start and stop, prefixes,
costs."""
