"""TLS and tokens, which identify the client and the servers that it trusts."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import grpc

from specmesh.client.errors import SpecmeshError, Unauthenticated

TokenSource = str | Callable[[], str | Awaitable[str]]
"""A bearer token, or a function that returns one and is called before every call. A synchronous
function runs in a thread, so it may read a file or ask an identity provider. If it fails, its call
raises Unauthenticated."""

Pem = bytes | str | Path
"""PEM text as bytes, or the path of a PEM file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS settings of all connections; an empty ``Tls()`` trusts the system's root certificates.

    With ``certificate_chain`` and ``private_key`` the client authenticates itself (mTLS). Files
    are read again when they change: later calls use the new ones, open calls continue.
    ``server_name`` is the name in the servers' certificates if it differs from the target's.
    """

    root_certificates: Pem | None = None
    certificate_chain: Pem | None = None
    private_key: Pem | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate_chain is None) != (self.private_key is None):
            raise ValueError("certificate_chain and private_key must be given together")
        for name in ("root_certificates", "certificate_chain", "private_key"):
            # Taken for a path, a private key would end up in the message of an error.
            if isinstance(pem := getattr(self, name), str | Path) and "-----BEGIN" in str(pem):
                raise ValueError(f"{name}: pass PEM text as bytes; a string is the path of a file")

    def version(self) -> tuple[object, ...]:
        """Return a value that changes when a file changes. Raises OSError if one can't be read."""
        return tuple(map(_version, self._pems))

    def credentials(self) -> grpc.ChannelCredentials:
        """Return the credentials for a channel. Raises OSError if a file can't be read."""
        roots, chain, key = map(_read, self._pems)
        return grpc.ssl_channel_credentials(roots, key, chain)

    @property
    def _pems(self) -> tuple[Pem | None, Pem | None, Pem | None]:
        return self.root_certificates, self.certificate_chain, self.private_key


class TokenFile:
    """A token in a file, which is read again when it changes, as a token renewed by Kubernetes.

    A call raises OSError if the file can't be read.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._version: object = None
        self._token = ""

    def __call__(self) -> str:
        """Return the token."""
        version = _version(self._path)
        if version != self._version:
            self._token = self._path.read_text().strip()
            self._version = version
        return self._token


async def bearer(token: TokenSource) -> tuple[str, str]:
    """Return the metadata entry that carries the token.

    Raises Unauthenticated if its source fails, and ValueError for a token that no header can hold.
    """
    value = token if isinstance(token, str) else await _asked_for(token)
    if not value or not value.isascii() or not value.isprintable():
        raise ValueError("a token must be printable ASCII and not empty")
    return "authorization", f"Bearer {value}"


async def _asked_for(token: Callable[[], str | Awaitable[str]]) -> str:
    with failures_are_unauthenticated("token"):
        if inspect.iscoroutinefunction(token):
            value: str = await token()
            return value
        given = await asyncio.to_thread(token)
        return await given if inspect.isawaitable(given) else given


@contextmanager
def failures_are_unauthenticated(asked_for: str) -> Iterator[None]:
    """Raise Unauthenticated if the caller's function that gives ``asked_for`` fails in the block:
    that ends one answer, not the batch that it belongs to."""
    try:
        yield
    except SpecmeshError:
        raise
    except Exception as error:
        raise Unauthenticated(
            f"the function that gives the {asked_for} failed: {error!r}",
            code=grpc.StatusCode.UNAUTHENTICATED,
        ) from error


def is_loopback(target: str) -> bool:
    """Return whether ``target``, an address as gRPC takes it, is on this machine."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    hosts = _SCHEME.sub("", target).split(",")  # `ipv4:` and `ipv6:` take several.
    return all(_is_loopback_host(host.rpartition(":")[0].strip("[]")) for host in hosts)


_SCHEME = re.compile("^(dns:(///)?|ipv[46]:)")
"""The prefix of a host that this machine resolves: not the name server of ``dns://SERVER/HOST``."""


def _is_loopback_host(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _version(pem: Pem | None) -> object:
    if pem is None or isinstance(pem, bytes):
        return None
    status = Path(pem).stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(pem: Pem | None) -> bytes | None:
    return pem if pem is None or isinstance(pem, bytes) else Path(pem).read_bytes()
