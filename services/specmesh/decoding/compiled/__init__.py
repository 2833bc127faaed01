"""What numpy would do in several passes over a row of logits, compiled by numba to take one."""
