"""OpenTelemetry: exporters, spans of calls, and the port for Prometheus."""
