"""Request messages built from keyword arguments."""
