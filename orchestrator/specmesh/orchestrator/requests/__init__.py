"""From a request to a plan: everything is checked and every default settled before any work."""
