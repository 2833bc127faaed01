"""Models made of a hash, of which everything is known in advance."""
