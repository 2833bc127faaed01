"""What a generator needs of a server, whichever protocol it speaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

from specmesh.load.transports.observation import MeshWork
from specmesh.load.workload.variations import Variation


class RequestFailed(Exception):
    """A request failed; ``reason`` is what failures are counted by."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """A request. ``said`` is what was said before and the prompt: the user's words and the
    model's in turn, the user's first and last."""

    said: tuple[str, ...]
    variation: Variation
    max_tokens: int | None
    ignore_end: bool
    sampling_seed: int
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a server says at the end of an answer; None is what it doesn't tell."""

    num_prompt_tokens: int | None
    num_output_tokens: int | None
    num_resumes: int = 0
    work: MeshWork | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """What a server says that it serves. ``model`` is the first, if none was asked for;
    ``has_strategies``: it is specmesh, and does not pass over a request's strategy."""

    model: str
    has_strategies: bool


Heard = Callable[[int | None, str], bool]
"""Called with each chunk of an answer: its tokens, if the server counts them, and its text.
Returns whether to go on reading; if not, the answer is cancelled."""


class Transport(Protocol):
    """A connection to servers, of one event loop."""

    async def ask(self, call: LoadRequest, heard: Heard) -> Told | None:
        """Read an answer to its end; None if ``heard`` cancelled it. Raises Failed."""
        ...

    async def served(self) -> Served:
        """What the server says. Raises Failed, also where it serves nothing."""
        ...

    async def count_tokens(self, text: str) -> int:
        """The tokens of a text. Raises Failed."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...


class ServerAddress(Protocol):
    """Where and how to connect; can be sent to another process."""

    @property
    def description(self) -> str:
        """The protocol and the addresses, for the report."""
        ...

    @property
    def model(self) -> str:
        """The one to ask for; empty: the first that the server names."""
        ...

    def asking_for(self, model: str) -> ServerAddress:
        """The same, with that model."""
        ...

    @property
    def chat(self) -> bool:
        """Whether to send chats, not texts."""
        ...

    def open(self) -> Transport:
        """A connection of the running event loop."""
        ...
