"""Processes that send a workload together and take the times."""
