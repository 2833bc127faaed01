"""The handlers of the gateway's paths."""
