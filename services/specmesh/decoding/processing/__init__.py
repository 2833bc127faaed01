"""The changes that a request makes to logits before tokens are chosen."""
