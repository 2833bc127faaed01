"""The orchestrator: drives drafters and verifiers to answer requests.

Reading order: ``strategies`` (what to do next, without I/O), ``driver`` (performs it),
``replicas`` (calls to drafters and verifiers), ``servicer`` (the gRPC service for clients).
"""
