"""One request on a call that stays open: how it is sent, and who receives the responses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from specmesh.orchestrator.replicas.transport.inbox import Inbox, Response, Take

Request_contra = TypeVar("Request_contra", contravariant=True)
Response_contra = TypeVar("Response_contra", contravariant=True)
Response_co = TypeVar("Response_co", covariant=True)


class Receiver(Protocol[Response_contra]):
    """Receives the responses to one request, in the step of the event loop that reads them. Nothing
    that it does may raise."""

    def arrived(self, message: Response_contra) -> None:
        """A response has come."""

    def ended(self, end: BaseException) -> None:
        """Nothing more comes, for this reason."""


class Sent(Protocol):
    """A request that was sent. Its receiver is told nothing once it is closed."""

    def close(self, error: BaseException | None = None) -> None:
        """End the request; must be called. With an ``error``, be it that of its receiver, a late
        response or a cancellation, the peer's work on it is cancelled; without, all responses have
        been read."""


class OpenCalls(Protocol[Request_contra, Response_co]):
    """Sends requests to one peer by one of its methods."""

    def retire(self) -> None:
        """Take no more requests, and end each call once its requests have ended."""

    def begin(self, request: Request_contra, receiver: Receiver[Response_co]) -> Sent:
        """Send ``request``; the receiver is told of its responses, but not before this returns.
        Raises ``AioRpcError`` if the calls have been retired."""


@contextmanager
def exchange(
    calls: OpenCalls[Request_contra, Response], request: Request_contra, deadline: float
) -> Iterator[Exchange[Response]]:
    """Send ``request``; the block must read all its responses.

    If the block raises, the peer's work on the request is cancelled. Raises what ``begin`` raises.
    """
    inbox: Inbox[Response] = Inbox()
    sent = calls.begin(request, inbox)
    try:
        yield Exchange(inbox, deadline)
    except BaseException as error:
        sent.close(error)
        raise
    sent.close()


class Exchange(Generic[Response]):
    """One request and its responses, until ``deadline`` by the event loop's clock."""

    def __init__(self, inbox: Inbox[Response], deadline: float) -> None:
        self._inbox = inbox
        self._deadline = deadline

    async def read(self) -> Response:
        """Return the only response. Raises what ``each`` raises."""
        messages: list[Response] = []
        await self._inbox.each(messages.append, self._deadline)
        return messages[0]

    async def each(self, take: Take[Response], by: float | None = None) -> None:
        """Pass the responses to ``take`` as they arrive. The first must arrive before ``by`` or the
        deadline, whichever is earlier.

        Raises ``AioRpcError``, also for a late response, and what ``take`` raises.
        """

        def bounded(message: Response) -> float | None:
            next_by = take(message)
            return None if next_by is None else min(next_by, self._deadline)

        await self._inbox.each(bounded, self._deadline if by is None else min(by, self._deadline))
