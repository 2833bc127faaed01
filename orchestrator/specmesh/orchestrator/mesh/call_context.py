"""When a command was given."""

from __future__ import annotations

from dataclasses import dataclass

from opentelemetry.context import Context


@dataclass(frozen=True, slots=True)
class CallContext:
    """When a command was given: it is carried out a little later, and maybe repeated."""

    num_committed: int
    """The tokens, prompt included, that its path follows."""
    parent: Context
    """Of its spans."""
