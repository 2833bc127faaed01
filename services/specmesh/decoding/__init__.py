"""The mathematics of speculative decoding: pure functions that need only numpy."""
