"""What every server process shares: settings, life cycle, errors, telemetry, logs; never torch."""
