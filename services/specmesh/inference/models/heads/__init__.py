"""Heads: small networks that draft from the target's own hidden states, beside the target."""
