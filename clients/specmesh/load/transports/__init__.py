"""The protocols in which a generator sends requests."""
