"""What drafter and verifier processes share around a model: settings, life, prefixes, costs."""
