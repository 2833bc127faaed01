"""The parts that all server processes share: settings, life cycle, errors, telemetry, logs. No
module here imports torch."""
