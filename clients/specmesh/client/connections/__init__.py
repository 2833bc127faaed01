"""The orchestrators that a client may call, and the channels to them."""
