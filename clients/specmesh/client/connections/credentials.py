"""TLS and tokens, which identify the client and the servers that it trusts."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import grpc

from specmesh.client.connections.pems import Pem, PemFiles, PemTexts, version_of
from specmesh.client.errors import SpecmeshError, Unauthenticated

TokenSource = str | Callable[[], str | Awaitable[str]]
"""A bearer token, or a function that returns one and is called before every call. A synchronous
function runs in a thread, so it may read a file or ask an identity provider. If it fails, its call
raises Unauthenticated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS settings of all connections; an empty ``Tls()`` trusts the system's root certificates.

    With ``certificate_chain`` and ``private_key`` the client authenticates itself (mTLS). Files
    are read again when they change: later calls use the new ones, open calls continue. While
    changed files are unusable, which is logged, the former contents stay in use.
    ``server_name`` is the name in the servers' certificates if it differs from the target's.
    """

    root_certificates: Pem | None = None
    certificate_chain: Pem | None = None
    private_key: Pem | None = None
    server_name: str | None = None
    _files: PemFiles = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if (self.certificate_chain is None) != (self.private_key is None):
            raise ValueError("certificate_chain and private_key must be given together")
        for name in ("root_certificates", "certificate_chain", "private_key"):
            # Taken for a path, a private key would end up in the message of an error.
            if isinstance(pem := getattr(self, name), str | Path) and "-----BEGIN" in str(pem):
                raise ValueError(f"{name}: pass PEM text as bytes; a string is the path of a file")

        pems = self.root_certificates, self.certificate_chain, self.private_key
        object.__setattr__(self, "_files", PemFiles(*pems))

    def pems(self) -> PemTexts:
        """Return the contents of the PEMs, the same object until they change.

        Files that have become unusable are logged, and the former contents stay. Raises OSError if
        a file can't be read at first, and ValueError, with the name of the field, for what is no
        certificate or not its key.
        """
        return self._files.current()


class TokenFile:
    """A token in a file, which is read again when it changes, as a token renewed by Kubernetes.

    While the file is empty, as when it is being written, the former token stays in use. Called
    itself, it raises OSError if the file can't be read, and ValueError if it is not UTF-8; calls of
    the mesh raise Unauthenticated from these.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._version: object = None
        self._token = ""

    def __call__(self) -> str:
        """Return the token."""
        version = version_of(self._path)
        if version != self._version:
            token = _text_in(self._path).strip()
            if token or not self._token:
                self._token, self._version = token, version
        return self._token


def _text_in(file: Path) -> str:
    with suppress(UnicodeDecodeError):  # which would repeat the token to whoever logs it
        return file.read_text("utf-8")
    raise ValueError(f"{file} is not UTF-8")


async def bearer(token: TokenSource) -> tuple[str, str]:
    """Return the metadata entry that carries the token.

    Raises Unauthenticated if its source fails, and ValueError for a token that no header can hold.
    """
    value = _checked(token) if isinstance(token, str) else await _asked_for(token)
    return "authorization", f"Bearer {value}"


async def _asked_for(token: Callable[[], str | Awaitable[str]]) -> str:
    with failures_are_unauthenticated("token"):
        if inspect.iscoroutinefunction(token):
            return _checked(await token())
        given = await asyncio.to_thread(token)
        return _checked(await given if inspect.isawaitable(given) else given)


def is_token(value: object) -> bool:
    """Return whether a header can hold ``value`` as a token."""
    return isinstance(value, str) and bool(value) and value.isascii() and value.isprintable()


def _checked(value: str) -> str:
    """Raise ValueError for what is no token, whatever the caller's types say."""
    if not is_token(value):
        raise ValueError("a token must be printable ASCII and not empty")
    return value


@contextmanager
def failures_are_unauthenticated(asked_for: str) -> Iterator[None]:
    """Raise Unauthenticated if the caller's function that gives ``asked_for`` fails in the block:
    that ends one answer, not the batch that it belongs to."""
    try:
        yield
    except SpecmeshError:
        raise
    except Exception as error:
        # Not its `repr`, in which a UnicodeDecodeError shows all that could not be decoded.
        why = f"{type(error).__name__}: {error}"
        raise Unauthenticated(
            f"the function that gives the {asked_for} failed: {why}",
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
