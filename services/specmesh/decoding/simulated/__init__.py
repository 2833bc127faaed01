"""Models made from a hash, whose output is known in advance."""
