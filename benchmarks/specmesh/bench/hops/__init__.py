"""``specmesh bench hops``: the cost of a hop to a verifier beyond gRPC itself."""
