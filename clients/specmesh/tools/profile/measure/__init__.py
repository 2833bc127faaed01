"""The times of calls to replicas, measured in one setting after another."""
