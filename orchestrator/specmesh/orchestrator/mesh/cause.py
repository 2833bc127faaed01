"""What made a strategy ask for a call, for the call's span."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from opentelemetry.util.types import AttributeValue

from specmesh.serving import conventions as names


class Cause:
    """The event that a command answers, which arrived at ``arrived_s`` by the event loop's clock.

    Spans overlap, so that a trace alone does not tell which result a call had waited for.
    """

    def __init__(self, event: str, arrived_s: float) -> None:
        self._event = event
        self._arrived_s = arrived_s
        self._told = False

    def attributes(self) -> Mapping[str, AttributeValue]:
        """Of the span that begins now: the first attempt of the call. Others have other causes."""
        if self._told:
            return {}
        self._told = True
        reaction_s = asyncio.get_running_loop().time() - self._arrived_s
        return {names.CAUSE: self._event, names.REACTION_MS: reaction_s * 1e3}
