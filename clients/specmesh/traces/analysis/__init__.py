"""Where the time of answers went."""
