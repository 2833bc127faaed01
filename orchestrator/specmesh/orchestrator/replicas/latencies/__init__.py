"""Measured latencies of calls, and the timeouts derived from them."""
