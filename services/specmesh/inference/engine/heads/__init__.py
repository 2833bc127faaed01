"""A target that also drafts with heads: what the engine asks of heads of any kind, and their
drafts."""
