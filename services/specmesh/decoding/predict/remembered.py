"""A value that is expensive to compute and changes slowly."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Remembered(Generic[T]):
    """The latest value, which is computed anew once it is too old or was that of another key."""

    def __init__(self) -> None:
        self._value: T | None = None
        self._key: Hashable = None
        self._since = -math.inf

    def at(self, now: float, for_s: float, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the value of ``key`` at the time ``now``, which is valid for ``for_s`` seconds."""
        if self._value is None or key != self._key or now - self._since >= for_s:
            self._value, self._key, self._since = compute(), key, now
        return self._value
