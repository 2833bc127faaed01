"""The orchestrators that a client calls, and the channels to them."""
