"""Request messages from keyword arguments."""
