"""Benchmarks, checks of the tools, and chaos tests.

This package may import every other one; none imports it.
"""
