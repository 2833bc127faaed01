"""The replicas of one role, and the choice of one for the next call."""
