"""The tries of ways of decoding through the orchestrator."""
