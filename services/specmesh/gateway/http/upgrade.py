"""Requests that would rather go on in another protocol are answered in HTTP/1.1.

A server may ignore ``Upgrade`` (RFC 9110, 7.8), which clients such as Java's and ``curl --http2``
send with every first request. llhttp however takes all that follows such a head for the other
protocol, the body included, so another parser is given the head once more, without ``Upgrade``.
"""

from __future__ import annotations

import sys

from httptools import HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class IgnoresUpgrade(HttpToolsProtocol):
    """A connection that speaks HTTP/1.1 alone."""

    _received = b""
    """The bytes that the parser is being fed with."""
    _again = b""
    """The bytes to be parsed after those."""

    def data_received(self, data: bytes) -> None:
        """Parse ``data``."""
        while data:
            self._received, self._again = data, b""
            super().data_received(data)
            data = self._again

    def on_headers_complete(self) -> None:
        """Start to answer the request, unless it is going to be parsed once more."""
        if not self._asks_for_upgrade:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the request has arrived completely, likewise."""
        if not self._asks_for_upgrade:
            super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Have the request parsed once more, and all that follows its head."""
        stopped = sys.exception()
        if self._asks_for_upgrade and stopped is not None:
            self._again = self._head_without_upgrade() + bytes(self._received[stopped.args[0] :])
            # The one that has stopped would read no more after ``Connection: close``.
            self.parser = HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own

    @property
    def _asks_for_upgrade(self) -> bool:
        """True for a head with ``Upgrade``; for the parser CONNECT is one, too."""
        return bool(self.parser.should_upgrade()) and self.parser.get_method() != b"CONNECT"

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + version]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])
