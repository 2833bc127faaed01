"""Times of calls to replicas, taken under settings one after the other."""
