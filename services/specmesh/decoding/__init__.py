"""The mathematics of speculative decoding: pure functions of numbers, numpy only."""
