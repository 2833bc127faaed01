"""The commands that plan, profile, calibrate, simulate and demonstrate a mesh."""
