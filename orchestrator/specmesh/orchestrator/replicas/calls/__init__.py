"""The calls of one request to verifiers, drafters and the confidence service."""
