"""What a hop to a verifier costs beyond gRPC itself: ``specmesh bench hops``."""
