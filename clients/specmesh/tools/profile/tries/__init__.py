"""Ways of decoding, tried through the orchestrator."""
