"""``specmesh bench hcmp``: the exactness and speed of a forward divided among processing units."""
