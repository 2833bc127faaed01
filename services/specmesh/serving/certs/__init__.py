"""The command ``specmesh certs``, which makes a development CA and its certificates."""
