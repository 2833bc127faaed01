"""The table of int64 by which compiled code is told of rows of logits."""

NUM_TAKEN, NUM_ROWS, VOCAB_SIZE, NUM_HEAD_FIELDS = 0, 1, 2, 3
"""The first fields: the numbers of rows that threads have taken, of all rows, and of the tokens of
each."""

ADDRESS, KEY, SCALE, NUM_ROW_FIELDS = 0, 1, 2, 3
"""The fields of each row after these: the address of its logits, in place of which its token is
written; the key of its stream of noise; and 1 / temperature as the bits of a float64, 0 for greedy
decoding."""
