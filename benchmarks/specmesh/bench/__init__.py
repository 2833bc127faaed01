"""What measures: benchmarks, the papers' experiments, chaos, calibration and the demo.

It stands at the top of the import graph: it may import everything, nothing imports it.
"""
