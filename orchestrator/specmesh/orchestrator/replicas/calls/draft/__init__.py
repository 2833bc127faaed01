"""The drafts of one request: attempts at drafters, and what these send."""
