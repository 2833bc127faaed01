"""The state of a request at the moment when a command was issued."""

from __future__ import annotations

from dataclasses import dataclass

from opentelemetry.context import Context

from specmesh.orchestrator.replicas.calls.cause import Cause


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The state of a request when a command was issued; its call may be sent and retried later.

    ``RequestContext`` is what the calls of all its commands share.
    """

    num_committed: int
    """Committed tokens, prompt included, that precede the command's path."""
    parent: Context
    """Parent of the call's spans."""
    cause: Cause
    """The event that made the strategy issue the command."""
