"""The orchestrator: drives drafters and verifiers to answer requests.

Reading order: ``strategies`` (what to do next, without I/O), ``driver`` (does it),
``mesh`` (the peers it is done with), ``servicer`` (the face to clients).
"""
