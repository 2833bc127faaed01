"""Text and tokens: the target's tokenizer, decoding, and stop strings."""
