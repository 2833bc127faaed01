"""What all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# Elsewhere every run explores new cases; CI repeats the same ones, so that it judges the
# change and not the dice. No deadlines: machines are shared.
settings.register_profile("explore", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "explore")
