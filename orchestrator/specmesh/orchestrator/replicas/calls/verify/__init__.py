"""The verifications of one request: attempts at replicas of the target, retries and hedges."""
