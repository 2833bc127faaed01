"""What every server process shares: settings, life, errors, telemetry, logs; never torch."""
