"""The page of ``specmesh trace open``: a self-contained HTML document, and the server from which it
fetches traces."""
