"""A client's connection, with the limits that uvicorn leaves to a proxy in front of it.

llhttp (through httptools) parses requests and uvicorn answers them, without limits on time or size.
Here, request line and headers have a deadline and a size limit, bodies must not come in tiny
chunks, clients must read their responses, and the connections of each address are limited.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from uvicorn import Config
from uvicorn.server import ServerState

from specmesh.gateway.errors import ApiError
from specmesh.gateway.http.connections import READ_BYTES, Connections, error_response
from specmesh.gateway.http.old_clients import SparesOldClients
from specmesh.gateway.http.upgrade import IgnoresUpgrade
from specmesh.gateway.peers import TellsPeer
from specmesh.serving import metrics

log = logging.getLogger(__name__)

_num_refused = metrics.CONNECTIONS_REFUSED.instrument()

HEAD_SECONDS = 10.0
"""The time limit for request line and headers to arrive, also on a new connection, and for the rest
of a body to arrive after its request was answered."""
MAX_HEAD_BYTES = 2**15
"""The size limit for request line, headers and trailers together."""
MAX_HEADERS = 100
MAX_PIPELINED = 8
"""The number of requests of one connection that may wait for the answer to an earlier one."""
FREE_PIECES = 1024
MIN_PIECE_BYTES = 32
"""The average size that the chunks of a body must have, not counting FREE_PIECES of them: handling
a chunk costs as much as a thousand bytes do."""


class HttpConnection(TellsPeer, IgnoresUpgrade, SparesOldClients, asyncio.BufferedProtocol):
    """One connection. A timer limits every state that waits for the peer."""

    def __init__(self, config: Config, state: ServerState, shared: Connections) -> None:
        super().__init__(config, state, {})
        self._shared = shared
        self._address: str | None = None
        """The address that the connection is counted for; None if it was turned away."""
        self._deadline: asyncio.TimerHandle | None = None
        """The deadline for the headers, or for the rest of an answered request's body."""
        self._stall: asyncio.TimerHandle | None = None
        self._has_begun = False
        """True while a request has begun and is not complete."""
        self._is_refused = False
        """True once all further input is ignored."""
        self._num_silent_bytes = 0
        """Bytes received since the parser's last callback: it buffers incomplete headers."""
        self._num_head_bytes = 0
        self._num_body_bytes = 0
        self._num_pieces = 0

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, or turn it away."""
        super().connection_made(transport)
        # pause_writing is then called whenever the kernel doesn't take all data immediately; with
        # high=0, TLS would call it on every write.
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
        self._stop_counting()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Return the shared read buffer."""
        return self._shared.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the ``nbytes`` that were read into the buffer."""
        if self._is_refused or self.transport.is_closing():
            return
        self._num_silent_bytes += nbytes
        self.data_received(self._shared.buffer[:nbytes])  # type: ignore[arg-type]
        if self._is_refused or self.transport.is_closing():
            return
        if self._num_silent_bytes > MAX_HEAD_BYTES + READ_BYTES:
            self._refuse(_head_too_large())
        elif self._is_idle and self._deadline is None and self.timeout_keep_alive_task is None:
            # The headers are incomplete, or have not begun: empty lines don't count as a beginning.
            self._expect(HEAD_SECONDS)

    def pause_writing(self) -> None:
        """Start the timer for a peer that reads too slowly, or not at all."""
        super().pause_writing()
        self._watch_sending(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Stop that timer, since the peer has read everything."""
        super().resume_writing()
        self._watch_sending(None)

    # Callbacks of the parser. send_400_response sends the peer each ApiError raised here.

    def on_message_begin(self) -> None:
        """Begin a request."""
        if len(self.pipeline) >= MAX_PIPELINED:
            message = "too many requests are pipelined on one connection"
            raise ApiError(400, message, code="invalid_http")
        super().on_message_begin()
        self._has_begun = True
        self._num_head_bytes = self._num_body_bytes = self._num_pieces = 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the request line."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header or trailer."""
        self._count_head(len(name) + len(value) + len(b": \r\n"))
        if len(self.headers) >= MAX_HEADERS:
            raise _too_many_headers()
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start to answer the request."""
        self._num_silent_bytes = 0
        self._expect(None)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._num_silent_bytes = 0
        self._num_body_bytes += len(body)
        self._num_pieces += 1
        num_paid = self._num_pieces - FREE_PIECES
        if num_paid * MIN_PIECE_BYTES > self._num_body_bytes:
            raise ApiError(400, "the chunks of the body are too small", code="invalid_http")
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request has arrived completely."""
        self._num_silent_bytes = 0
        self._has_begun = False
        self._expect(None)
        super().on_message_complete()

    # Callbacks of uvicorn.

    def on_response_complete(self) -> None:
        """Limit the time for the rest of the body, which may still be arriving."""
        super().on_response_complete()
        if self._has_begun and not self.pipeline:
            self._expect(HEAD_SECONDS)
        elif self.timeout_keep_alive_task is not None and self._address is not None:
            self._shared.rests(self, self._address)

    def _unset_keepalive_if_required(self) -> None:
        """Note the end of the time without a request."""
        super()._unset_keepalive_if_required()
        self._shared.wakes(self)

    def send_400_response(self, msg: str) -> None:
        """Refuse the request that the parser has failed at."""
        stopped = sys.exception()
        cause = stopped and stopped.__context__
        known = cause if isinstance(cause, ApiError) else None
        reason = str(stopped or msg)
        self._refuse(known or ApiError(400, f"not valid HTTP: {reason}", code="invalid_http"))

    def shutdown(self) -> None:
        """Close the connection, after answering its current request if there is one."""
        super().shutdown()
        if self._is_refused:
            self.transport.close()

    def make_way(self) -> None:
        """Close the idle connection for a new one."""
        self._unset_keepalive_if_required()
        self._stop_counting()
        self.transport.close()

    # Internals.

    def _stop_counting(self) -> None:
        if self._address is not None:
            self._shared.remove(self._address)
            self._address = None

    @property
    def _is_idle(self) -> bool:
        """True if no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _count_head(self, num_bytes: int) -> None:
        self._num_silent_bytes = 0
        self._num_head_bytes += num_bytes
        if self._num_head_bytes > MAX_HEAD_BYTES:
            raise _head_too_large()

    def _expect(self, within_s: float | None) -> None:
        """Set the peer's deadline to ``within_s`` from now; None clears it."""
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
        """Abort unless fewer than ``num_unsent`` bytes are unsent after ``stall_s``; None stops
        watching."""
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
        # close() would wait until everything is sent.
        self.transport.abort()

    def _refuse(self, error: ApiError) -> None:
        """Send ``error`` and close the connection; abort it if a response has already begun."""
        if self.cycle is not None and not self._is_idle:
            if self.cycle.response_started:
                self.transport.abort()
                return
            self.cycle.disconnected = True  # wakes up a handler that waits for the body
            self.cycle.message_event.set()
        # Closing while the peer still sends would reset the connection, and the peer might lose the
        # error. So close only the sending side, and wait a while for the peer to close its own.
        self._is_refused = True
        self.transport.write(error_response(error))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._expect(HEAD_SECONDS)

    def _turn_away(self, error: ApiError) -> None:
        """Send ``error`` and close a connection beyond the limits, without waiting for its peer."""
        log.warning("connection refused", extra={"reason": str(error)})
        _num_refused.add(1)
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
    message = f"the request line and headers have more than {MAX_HEAD_BYTES} bytes"
    return _headers_refused(message)


def _too_many_headers() -> ApiError:
    return _headers_refused(f"there are more than {MAX_HEADERS} headers")


def _headers_refused(message: str) -> ApiError:
    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    return ApiError(status, message, code="headers_too_large")
