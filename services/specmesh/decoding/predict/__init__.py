"""How much of a draft will be accepted, and how much to draft therefore."""
