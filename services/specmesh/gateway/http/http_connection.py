"""A connection of a client, with the limits that uvicorn leaves to a proxy in front of it.

llhttp reads requests (by httptools) and uvicorn answers them; both take as long as a peer likes,
and whatever it sends. Here a peer's head has a deadline and a size, a body has no tiny chunks,
what it is sent it has to read, and no address has more than its share of the connections.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from specmesh.gateway.errors import ApiError
from specmesh.gateway.http.connections import READ_BYTES, Connections, error_response
from specmesh.gateway.peers import TellsPeer

log = logging.getLogger(__name__)

HEAD_SECONDS = 10.0
"""How long a request line and headers may take to arrive, on a new connection too; and how long a
body that nobody wants any more may go on arriving."""
MAX_HEAD_BYTES = 2**15
"""Of request line, headers and trailers."""
MAX_HEADERS = 100
MAX_PIPELINED = 8
"""Requests of a connection that wait for the answer to an earlier one."""
FREE_PIECES = 1024
MIN_PIECE_BYTES = 32
"""What the chunks of a body have on average, from the FREE_PIECES-th on: each costs as much as a
thousand bytes do."""


class HttpConnection(TellsPeer, HttpToolsProtocol, asyncio.BufferedProtocol):
    """One connection. Each state in which the peer is waited for ends by a timer."""

    def __init__(self, config: Config, state: ServerState, shared: Connections) -> None:
        super().__init__(config, state, {})
        self._shared = shared
        self._address: str | None = None
        """Under which it is counted."""
        self._deadline: asyncio.TimerHandle | None = None
        """By when the head, or the rest of an answered request's body, must be there."""
        self._stall: asyncio.TimerHandle | None = None
        self._has_begun = False
        """Whether a request has begun and is not complete."""
        self._is_refused = False
        """Whether nothing that still comes is read."""
        self._num_silent_bytes = 0
        """Received since the parser last told something: it keeps parts of headers to itself."""
        self._num_head_bytes = 0
        self._num_body_bytes = 0
        self._num_pieces = 0

    # What asyncio tells.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, or turn it away."""
        super().connection_made(transport)
        # So pause_writing tells of whatever the kernel doesn't take at once; with 0, TLS always
        # would.
        transport.set_write_buffer_limits(high=1, low=0)
        address = self.client[0] if self.client else ""
        try:
            self._shared.add(address)
        except ApiError as error:
            self._turn_away(error)
        else:
            self._address = address
            self._expect(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._expect(None)
        self._watch_sending(None)
        if self._address is not None:
            self._shared.remove(self._address)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where to read to."""
        return self._shared.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        if self._is_refused or self.transport.is_closing():
            return
        self._num_silent_bytes += nbytes
        self.data_received(self._shared.buffer[:nbytes])  # type: ignore[arg-type]
        if self._is_refused or self.transport.is_closing():
            return
        if self._num_silent_bytes > MAX_HEAD_BYTES + READ_BYTES:
            self._refuse(_head_too_large())
        elif self._is_idle and self._deadline is None and self.timeout_keep_alive_task is None:
            # Not a whole head, and perhaps no beginning of one: empty lines don't count.
            self._expect(HEAD_SECONDS)

    def pause_writing(self) -> None:
        """The peer reads more slowly than it is written to, if it reads at all."""
        super().pause_writing()
        self._watch_sending(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The peer has read."""
        super().resume_writing()
        self._watch_sending(None)

    # What the parser tells. Each ApiError is what the peer is told, by send_400_response.

    def on_message_begin(self) -> None:
        """A request begins."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ApiError(400, "too many requests wait on one connection", code="invalid_http")
        super().on_message_begin()
        self._has_begun = True
        self._num_head_bytes = self._num_body_bytes = self._num_pieces = 0

    def on_url(self, url: bytes) -> None:
        """A part of the request line."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header or trailer."""
        self._count_head(len(name) + len(value) + len(b": \r\n"))
        if len(self.headers) >= MAX_HEADERS:
            raise _too_many_headers()
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there, and is answered."""
        self._num_silent_bytes = 0
        self._expect(None)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._num_silent_bytes = 0
        self._num_body_bytes += len(body)
        self._num_pieces += 1
        num_paid = self._num_pieces - FREE_PIECES
        if num_paid * MIN_PIECE_BYTES > self._num_body_bytes:
            raise ApiError(400, "the body comes in chunks that are too small", code="invalid_http")
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is there."""
        self._num_silent_bytes = 0
        self._has_begun = False
        self._expect(None)
        super().on_message_complete()

    # What uvicorn tells.

    def on_response_complete(self) -> None:
        """A request is answered, perhaps before its body has come."""
        super().on_response_complete()
        if self._has_begun and not self.pipeline:
            self._expect(HEAD_SECONDS)

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser has stopped at."""
        stopped = sys.exception()
        cause = stopped and stopped.__context__
        known = cause if isinstance(cause, ApiError) else None
        reason = str(stopped or msg)
        self._refuse(known or ApiError(400, f"this is no HTTP: {reason}", code="invalid_http"))

    def shutdown(self) -> None:
        """End the connection once its request, if there is one, is answered."""
        super().shutdown()
        if self._is_refused:
            self.transport.close()

    # What follows.

    @property
    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _count_head(self, num_bytes: int) -> None:
        self._num_silent_bytes = 0
        self._num_head_bytes += num_bytes
        if self._num_head_bytes > MAX_HEAD_BYTES:
            raise _head_too_large()

    def _expect(self, within_s: float | None) -> None:
        """Give the peer ``within_s`` for what it owes; None: it owes nothing."""
        self._deadline = _replaced(self._deadline, self.loop, within_s, self._too_late)

    def _too_late(self) -> None:
        message = f"the headers did not arrive within {HEAD_SECONDS:.0f} s"
        if self._is_refused:
            self.transport.abort()
        elif self._has_begun and self.cycle is None:
            self._refuse(ApiError(HTTPStatus.REQUEST_TIMEOUT, message, code="headers_timeout"))
        else:
            self.transport.close()

    def _watch_sending(self, num_unsent: int | None) -> None:
        """See to it that fewer than ``num_unsent`` bytes wait after ``stall_s``; None: none do."""
        self._stall = _replaced(
            self._stall,
            self.loop,
            None if num_unsent is None else self._shared.stall_s,
            lambda: self._check_sending(num_unsent or 0),
        )

    def _check_sending(self, num_before: int) -> None:
        num_unsent = self.transport.get_write_buffer_size()
        if num_unsent < num_before:
            self._watch_sending(num_unsent)
            return
        log.warning("client does not read", extra={"num_unsent_bytes": num_unsent})
        # Not close(), which would wait until all is sent.
        self.transport.abort()

    def _refuse(self, error: ApiError) -> None:
        """Tell the peer, and end the connection; in the midst of an answer, end it at once."""
        if self.cycle is not None and not self._is_idle:
            if self.cycle.response_started:
                self.transport.abort()
                return
            self.cycle.disconnected = True  # for whoever waits for the body
            self.cycle.message_event.set()
        # Closed while the peer still sends, the connection would be reset, and the peer might lose
        # what it is told. So it is given a moment to notice the end.
        self._is_refused = True
        self.transport.write(error_response(error))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._expect(HEAD_SECONDS)

    def _turn_away(self, error: ApiError) -> None:
        """As ``_refuse``, for a connection that there is no room for."""
        self._is_refused = True
        self.transport.write(error_response(error))
        self.transport.close()


def _replaced(
    timer: asyncio.TimerHandle | None,
    loop: asyncio.AbstractEventLoop,
    delay_s: float | None,
    then: Callable[[], Any],
) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None if delay_s is None else loop.call_later(delay_s, then)


def _head_too_large() -> ApiError:
    message = f"request line and headers have more than {MAX_HEAD_BYTES} bytes"
    return _headers_refused(message)


def _too_many_headers() -> ApiError:
    return _headers_refused(f"there are more than {MAX_HEADERS} headers")


def _headers_refused(message: str) -> ApiError:
    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    return ApiError(status, message, code="headers_too_large")
