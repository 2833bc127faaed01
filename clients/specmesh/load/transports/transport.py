"""The interface between a generator and a server, for any protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

from specmesh.load.transports.observation import MeshWork
from specmesh.load.workload.variations import Variation

OUT_OF_DESCRIPTORS = "OUT_OF_DESCRIPTORS"
"""Reason of RequestFailed where the generator's own machine had no file left for a connection."""


class RequestFailed(Exception):
    """A failed request; failures are counted by ``reason``. ``retry_after_s`` is the delay before
    the next request that the server asked for, if any."""

    def __init__(self, reason: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """A request. ``said`` has the messages of the user and the model in turn; the first and the
    last are the user's. Only chats have the ``system`` messages, before them."""

    said: tuple[str, ...]
    variation: Variation
    max_tokens: int | None
    ignore_end: bool
    sampling_seed: int
    timeout_s: float
    system: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The figures that a server reports at the end of an answer; None if it does not."""

    num_prompt_tokens: int | None
    num_output_tokens: int | None
    num_resumes: int = 0
    work: MeshWork | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """The offer of a server. ``model`` is the requested one, or else the first that it lists;
    ``has_strategies`` means that it is specmesh, and heeds a request's strategy."""

    model: str
    has_strategies: bool


Heard = Callable[[int | None, str], bool]
"""A callback for each chunk of an answer: its number of tokens, if the server counts them, and its
text. It returns whether to go on reading; if not, the answer is cancelled."""


class Transport(Protocol):
    """A connection to servers, bound to one event loop."""

    async def ask(self, call: LoadRequest, heard: Heard) -> Told | None:
        """Read an answer to its end; return None if ``heard`` cancelled it. Raises
        RequestFailed."""
        ...

    async def served(self) -> Served:
        """Return what the server offers. Raises RequestFailed, also if it serves no model."""
        ...

    async def count_tokens(self, text: str) -> int:
        """Count the tokens of a text. Raises RequestFailed."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...


class ServerAddress(Protocol):
    """The address of a server and the way to connect. It is picklable, because workers receive
    it."""

    @property
    def description(self) -> str:
        """Return the protocol and the addresses, for the report."""
        ...

    @property
    def model(self) -> str:
        """Return the model to request; empty for the first that the server lists."""
        ...

    def asking_for(self, model: str) -> ServerAddress:
        """Return a copy for that model."""
        ...

    @property
    def chat(self) -> bool:
        """Return whether to send chats instead of plain prompts."""
        ...

    def open(self) -> Transport:
        """Create a transport for the running event loop."""
        ...
