"""The environment of each call of a gRPC server: layers, limits, health, metrics, spans, drain."""
