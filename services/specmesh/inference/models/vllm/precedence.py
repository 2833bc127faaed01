"""The choice of idle requests that keep their blocks while other calls wait for some.

A session that gives up its blocks after each call has to have its whole prefix read again for the
next one. So its calls go ahead of those that wait, but only some times in a row, and its request
keeps its blocks between them, but only for some steps, since nothing tells whether the session has
ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

MAX_AHEAD: Final = 16
"""The most calls of a request that go ahead of calls that wait for blocks. Each of them then bears
a sixteenth of what it costs to read the prefix again."""
MAX_STEPS: Final = 16
"""The most steps for which an idle request keeps its blocks from calls that wait."""


@dataclass(slots=True)
class Precedence:
    """The precedence that a request has had over calls that wait for blocks."""

    num_ahead: int = 0
    """The number of its calls that went ahead of others."""
    idle_since: int = 0
    """The number of the step in which its latest call ended."""

    @property
    def is_left(self) -> bool:
        """True if another call may go ahead."""
        return self.num_ahead < MAX_AHEAD

    def keeps_blocks(self, step: int) -> bool:
        """Return whether the request, idle at ``step``, keeps its blocks from calls that wait."""
        return self.is_left and step - self.idle_since <= MAX_STEPS


class Preceding(Protocol):
    """A request with a precedence."""

    precedence: Precedence


P = TypeVar("P", bound=Preceding)


def in_order(idle: Sequence[P], step: int) -> tuple[list[P], list[P]]:
    """Return those of ``idle``, longest idle first, that don't keep their blocks, and those that
    do, each in the order in which they are given up.

    Sessions take turns, so of those that go on, the one that was served last is the last to need
    its blocks again.
    """
    keep = [each for each in idle if each.precedence.keeps_blocks(step)]
    others = [each for each in idle if not each.precedence.keeps_blocks(step)]
    return others, keep[::-1]
