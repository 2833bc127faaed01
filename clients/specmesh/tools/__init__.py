"""Commands that plan, profile, calibrate, simulate and show a mesh."""
