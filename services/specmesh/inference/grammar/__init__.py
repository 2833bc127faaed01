"""Grammars of answers: compiled, followed token by token, and made into masks for logits."""
