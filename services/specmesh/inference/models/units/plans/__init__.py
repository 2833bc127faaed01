"""Plans of how work is divided: pure arithmetic on measured times."""
