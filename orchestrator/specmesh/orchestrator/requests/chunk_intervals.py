"""The shortest time between two chunks of an answer, in which its tokens wait for others.

A chunk costs about as much with many tokens as with one, and so does a verdict. So where nobody
reads along, tokens that come together cost a fraction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from specmesh.decoding.errors import InvalidField

CHUNK_INTERVAL = "specmesh-chunk-interval-ms"
"""The name of the metadata by which a client asks for an interval."""
LONGEST_INTERVAL_MS = 500
"""The longest interval: as long as a heartbeat may take."""
WHOLE_INTERVAL_S = 0.25
"""The interval for an answer that is returned whole. Each chunk is stored, and a token waits for
twice as long at most, so that no more than that is lost with an orchestrator."""


def read_chunk_interval(metadata: Iterable[tuple[str, str | bytes]]) -> float:
    """Return the interval that a client asks for, in seconds. Raises ``InvalidField``."""
    for name, value in metadata:
        if name == CHUNK_INTERVAL:
            digits = value.decode("latin-1") if isinstance(value, bytes) else value
            if not re.fullmatch("[0-9]{1,3}", digits) or int(digits) > LONGEST_INTERVAL_MS:
                raise InvalidField(CHUNK_INTERVAL, f"must be in [0, {LONGEST_INTERVAL_MS}]")
            return int(digits) / 1e3
    return 0.0
