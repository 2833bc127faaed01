"""Authentication and authorization of peers: TLS, roles and bearer tokens."""
