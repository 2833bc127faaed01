"""Events that a client reports while it works, to callbacks and the logger ``specmesh.client``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from specmesh.client.answers.values import GenerationResult
from specmesh.client.connections.recovery import has_no_room
from specmesh.client.errors import SpecmeshError

logger = logging.getLogger("specmesh.client")
# A library is silent unless its user configures logging.
logger.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class BrokenCall:
    """A call that broke and will be retried after ``pause_s`` seconds.

    ``num_broken`` counts the calls in a row that brought no token; ``session_id`` is empty before
    the answer has begun.
    """

    target: str
    error: SpecmeshError
    num_broken: int
    pause_s: float
    session_id: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an answer: its result, or its error, or neither if it was cancelled."""

    session_id: str
    result: GenerationResult | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Callbacks, which run in the client's event loop and so must be quick.

    An exception that one raises is logged and otherwise ignored.
    """

    on_retry: Callable[[BrokenCall], None] | None = None
    """Called when a call breaks before its answer has begun."""
    on_resume: Callable[[BrokenCall], None] | None = None
    """Called when a call breaks after its answer has begun."""
    on_finish: Callable[[Ended], None] | None = None
    """Called when an answer has finished, failed or been cancelled."""

    def broke(self, call: BrokenCall) -> None:
        """Log a broken call, and pass it to its callback."""
        what = "resuming" if call.session_id else "retrying"
        # A full mesh refuses many answers, and that another orchestrator is asked tells little.
        level = logging.INFO if has_no_room(call.error) and not call.pause_s else logging.WARNING
        logger.log(
            level, "call to %s broke, %s in %.2f s: %s", call.target, what, call.pause_s, call.error
        )
        _tell(self.on_resume if call.session_id else self.on_retry, call)

    def ended(self, answer: Ended) -> None:
        """Log the end of an answer, and pass it to its callback."""
        how = answer.error or ("finished" if answer.result else "cancelled")
        logger.debug("answer %s ended: %s", answer.session_id or "not begun", how)
        _tell(self.on_finish, answer)


Told = TypeVar("Told", BrokenCall, Ended)


def _tell(hook: Callable[[Told], None] | None, told: Told) -> None:
    if hook is not None:
        try:
            hook(told)
        except Exception:
            logger.exception("a hook raised an exception")
