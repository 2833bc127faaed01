"""HTTP: connections, bodies within their limits, and streams of events."""
