"""What a client tells its user while it works: callbacks, and lines of ``specmesh.client``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from specmesh.client.answers.values import GenerationResult
from specmesh.client.errors import SpecmeshError

logger = logging.getLogger("specmesh.client")
# A library is silent unless its user configures logging.
logger.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class BrokenCall:
    """A call that broke and is made again.

    ``num_broken`` counts those in a row that brought no token; ``session_id`` is empty before
    the answer has begun. The next call comes after ``pause_s`` seconds.
    """

    target: str
    error: SpecmeshError
    num_broken: int
    pause_s: float
    session_id: str


@dataclass(frozen=True, slots=True)
class Ended:
    """An answer's end: its result, or the error that ended it, or neither if it was cancelled."""

    session_id: str
    result: GenerationResult | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Functions that are called in the client's event loop, so they must be quick.

    One that raises is logged, and changes nothing.
    """

    on_retry: Callable[[BrokenCall], None] | None = None
    """A call broke before its answer had begun."""
    on_resume: Callable[[BrokenCall], None] | None = None
    """A call broke within its answer."""
    on_finish: Callable[[Ended], None] | None = None
    """An answer ended, whichever way."""

    def broke(self, call: BrokenCall) -> None:
        """Log it, and tell the user."""
        what = "resumed" if call.session_id else "tried again"
        logger.warning(
            "call to %s broke, %s in %.2f s: %s", call.target, what, call.pause_s, call.error
        )
        _tell(self.on_resume if call.session_id else self.on_retry, call)

    def ended(self, answer: Ended) -> None:
        """Log it, and tell the user."""
        how = answer.error or ("finished" if answer.result else "cancelled")
        logger.debug("answer %s ended: %s", answer.session_id or "not begun", how)
        _tell(self.on_finish, answer)


Told = TypeVar("Told", BrokenCall, Ended)


def _tell(hook: Callable[[Told], None] | None, told: Told) -> None:
    if hook is not None:
        try:
            hook(told)
        except Exception:
            logger.exception("a hook raised")
