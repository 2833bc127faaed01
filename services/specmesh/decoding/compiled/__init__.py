"""Work on a row of logits that takes numpy several passes, compiled by numba to take one."""
