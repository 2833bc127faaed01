"""The replicas that an orchestrator calls: their health, the choice among them, and the calls."""
