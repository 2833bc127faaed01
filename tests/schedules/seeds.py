"""Seeds whose schedules found a bug once."""

REGRESSIONS: tuple[int, ...] = ()
