"""Which replicas there are: addresses that are listed, and what names resolve to."""
