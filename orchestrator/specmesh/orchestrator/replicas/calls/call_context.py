"""The state of a request at the moment when a command was issued."""

from __future__ import annotations

from dataclasses import dataclass, field

from opentelemetry.context import Context

from specmesh.orchestrator.replicas.calls.cancellation import TaskCancellation
from specmesh.orchestrator.replicas.calls.cause import Cause


@dataclass(frozen=True, slots=True)
class CallContext:
    """State at the moment a command was issued: its call is sent later, and maybe retried."""

    num_committed: int
    """Committed tokens, prompt included, that the command's path follows."""
    parent: Context
    """Parent of the call's spans."""
    cause: Cause
    """What made the strategy issue it."""
    cancellation: TaskCancellation = field(default_factory=TaskCancellation)
    """The way to cancel the command's task."""
