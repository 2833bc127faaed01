"""Discovery of replicas: listed addresses, and names that are resolved by DNS."""
