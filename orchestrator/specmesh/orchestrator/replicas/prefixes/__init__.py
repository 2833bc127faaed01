"""Which replicas hold which prefixes."""
