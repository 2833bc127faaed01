"""The pool of replicas of one role, which chooses a replica for each call."""
