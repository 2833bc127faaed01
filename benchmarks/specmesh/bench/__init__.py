"""Benchmarks, the papers' experiments, chaos, calibration and the demo.

This package may import every other one; none imports it.
"""
