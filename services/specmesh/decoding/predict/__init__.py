"""Predictions of how much of a draft is accepted, and the resulting length of drafts."""
