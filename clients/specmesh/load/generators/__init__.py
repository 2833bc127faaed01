"""The processes that together send a workload and measure latencies."""
