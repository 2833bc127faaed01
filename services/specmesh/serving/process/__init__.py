"""A server process: its command line, life cycle, logs and gRPC server."""
