"""The page of ``specmesh trace open``: an HTML document that holds all it needs, and the server
that it asks for traces."""
