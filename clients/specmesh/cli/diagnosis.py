"""Finds out why no orchestrator was reached, of which gRPC says little: it tries to connect."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from specmesh.cli.exit_status import ExitStatus
from specmesh.client import Tls

_TIMEOUT_S = 2.0
_VERDICT_S = 0.5
"""How long a server may take to close a connection that it does not want."""
_ADDRESS = re.compile(r"(?:dns:/*|ipv[46]:/*)?(?P<host>\[[^\]]+\]|[^:/\[\]]+):(?P<port>\d+)")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What to do about it, and the exit status that it deserves."""

    advice: str
    status: ExitStatus = ExitStatus.UNAVAILABLE


def diagnose(targets: Sequence[str], tls: Tls | None) -> Diagnosis | None:
    """Why calls to the first of ``targets`` find nobody; None if something listens there and
    speaks as it should."""
    found = _ADDRESS.fullmatch(targets[0])
    if found is None:
        return None
    host, port = found["host"].strip("[]"), int(found["port"])
    return asyncio.run(_diagnose(targets[0], host, port, tls))


async def _diagnose(target: str, host: str, port: int, tls: Tls | None) -> Diagnosis | None:
    try:
        async with _connection(host, port):
            pass
    except socket.gaierror:  # gRPC says so, too
        return None
    except OSError:
        return Diagnosis("is a mesh up? 'specmesh up' starts one here")
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    try:
        async with _connection(host, port, unchecked):
            speaks_tls = True
    except OSError:  # of which ssl.SSLError and TimeoutError are kinds
        speaks_tls = False
    if tls is not None and speaks_tls:
        return await _diagnose_certificates(target, host, port, tls)
    if tls is not None:
        return Diagnosis(f"{target} speaks plain text: leave out --tls-ca", ExitStatus.DENIED)
    if speaks_tls:
        return Diagnosis(f"{target} speaks TLS: --tls-ca is missing", ExitStatus.DENIED)
    return None


async def _diagnose_certificates(target: str, host: str, port: int, tls: Tls) -> Diagnosis | None:
    try:
        async with _connection(host, port, _context(tls), tls.server_name) as reader:
            # Since TLS 1.3 a server says only after the handshake what it thinks of the client.
            async with asyncio.timeout(_VERDICT_S):
                is_welcome = bool(await reader.read(1))
    except ssl.SSLCertVerificationError as error:
        why = f"the certificate of {target} can't be verified: {error.verify_message}"
        return Diagnosis(why, ExitStatus.DENIED)
    except TimeoutError:
        return None
    except OSError:
        is_welcome = False
    if is_welcome:
        return None
    wanted = "another --tls-cert" if tls.certificate_chain else "--tls-cert and --tls-key"
    return Diagnosis(f"{target} wants {wanted}", ExitStatus.DENIED)


@asynccontextmanager
async def _connection(
    host: str, port: int, context: ssl.SSLContext | None = None, name: str | None = None
) -> AsyncIterator[asyncio.StreamReader]:
    """Connect, and with a ``context`` shake hands with ``name``. Raises OSError."""
    if context is not None:
        context.set_alpn_protocols(["h2"])
    named = None if context is None else name or host
    async with asyncio.timeout(_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(
            host, port, ssl=context, server_hostname=named
        )
    try:
        yield reader
    finally:
        writer.transport.abort()


def check_files(tls: Tls) -> None:
    """Raise OSError, of which ssl.SSLError is a kind, for files that hold no certificate or key."""
    _context(tls)


def _context(tls: Tls) -> ssl.SSLContext:
    roots, chain, key = tls.root_certificates, tls.certificate_chain, tls.private_key
    context = ssl.create_default_context(cafile=str(roots) if isinstance(roots, Path) else None)
    if isinstance(chain, Path) and isinstance(key, Path):
        context.load_cert_chain(chain, key, password=lambda: "")
    return context
