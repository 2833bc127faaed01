"""Who the client is and whom it trusts: TLS and tokens."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import grpc

TokenSource = str | Callable[[], str | Awaitable[str]]
"""A bearer token, or a function that is asked for it before every call. One that is not
asynchronous runs in a thread, so that it may read a file or ask an identity provider."""

Pem = bytes | str | Path
"""PEM text as bytes, or the path of a file that has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Encrypts all connections; an empty ``Tls()`` trusts what the system trusts.

    With ``certificate_chain`` and ``private_key`` the client proves who it is (mTLS). Files are
    read again when they change: calls that begin after that use the new ones, those that have
    begun go on. ``server_name`` is the name in the servers' certificates, should it not be that
    of the target.
    """

    root_certificates: Pem | None = None
    certificate_chain: Pem | None = None
    private_key: Pem | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate_chain is None) != (self.private_key is None):
            raise ValueError("certificate_chain and private_key go together")

    def version(self) -> tuple[object, ...]:
        """Equal as long as no file has changed. Raises OSError if one can't be read."""
        return tuple(map(_version, self._pems))

    def credentials(self) -> grpc.ChannelCredentials:
        """What a channel is made with. Raises OSError if a file can't be read."""
        roots, chain, key = map(_read, self._pems)
        return grpc.ssl_channel_credentials(roots, key, chain)

    @property
    def _pems(self) -> tuple[Pem | None, Pem | None, Pem | None]:
        return self.root_certificates, self.certificate_chain, self.private_key


class TokenFile:
    """A token that is read from a file, such as one that Kubernetes renews; again when it changes.

    Raises OSError when a call is made and the file can't be read.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._version: object = None
        self._token = ""

    def __call__(self) -> str:
        """The token."""
        version = _version(self._path)
        if version != self._version:
            self._token = self._path.read_text().strip()
            self._version = version
        return self._token


async def bearer(token: TokenSource) -> tuple[str, str]:
    """The metadata that carries the token.

    Raises what its source raises, and ValueError for a token that no header can hold.
    """
    if isinstance(token, str):
        value = token
    elif inspect.iscoroutinefunction(token):
        value = await token()
    else:
        given = await asyncio.to_thread(token)
        value = await given if inspect.isawaitable(given) else given
    if not value or not value.isascii() or not value.isprintable():
        raise ValueError("a token is printable ASCII, and not empty")
    return "authorization", f"Bearer {value}"


def is_loopback(target: str) -> bool:
    """Whether ``target`` (host:port) is on this machine."""
    host = target.removeprefix("dns:///").rpartition(":")[0].strip("[]")
    if host == "localhost" or target.startswith("unix:"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _version(pem: Pem | None) -> object:
    if pem is None or isinstance(pem, bytes):
        return None
    status = Path(pem).stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(pem: Pem | None) -> bytes | None:
    return pem if pem is None or isinstance(pem, bytes) else Path(pem).read_bytes()
