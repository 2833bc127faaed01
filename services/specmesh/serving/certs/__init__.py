"""A development CA and its certificates: ``specmesh certs``."""
