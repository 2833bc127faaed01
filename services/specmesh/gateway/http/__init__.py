"""HTTP: connections, request bodies within limits, and streams of events."""
