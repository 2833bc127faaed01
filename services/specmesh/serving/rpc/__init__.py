"""What surrounds each call of a gRPC server: layers, limits, health, spans, and the end."""
