"""The format in which a call answers, whole or as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from specmesh.client import GenerationResult
from specmesh.gateway.errors import ApiError
from specmesh.gateway.responses.answers import AnswerEnded, Said
from specmesh.gateway.responses.envelope import Json


class Reply(Protocol):
    """The format of the response to one request. The parts of a stream are asked for in the order
    of the methods. A part with a ``type`` is an event of that name."""

    end_mark: str
    """The last event of a stream that was not broken off; empty if there is none."""

    def whole(self, results: Sequence[GenerationResult]) -> Json:
        """Return the response with all answers."""

    def begin(self) -> Iterator[Json]:
        """Return the parts that precede all answers."""

    def more(self, said: Said) -> Iterator[Json]:
        """Return the parts that continue an answer."""

    def end(self, ended: AnswerEnded) -> Iterator[Json]:
        """Return the parts that end an answer."""

    def finish(self, results: Sequence[GenerationResult]) -> Iterator[Json]:
        """Return the parts that follow all answers."""

    def fail(self, error: ApiError) -> Iterator[Json]:
        """Return the parts that end a stream which breaks off."""
