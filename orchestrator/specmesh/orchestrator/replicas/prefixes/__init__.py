"""The replicas that hold each prefix in their KV caches."""
