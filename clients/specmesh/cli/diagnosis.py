"""Diagnosis of failed connections: gRPC's errors say little, so this tries to connect itself."""

from __future__ import annotations

import asyncio
import os
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
"""Longest wait for a server to close a connection that it rejects."""
_ADDRESS = re.compile(r"(?:dns:/*|ipv[46]:/*)?(?P<host>\[[^\]]+\]|[^:/\[\]]+):(?P<port>\d+)")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """An explanation of an error, with what to do, and the exit status of the command."""

    message: str
    status: ExitStatus = ExitStatus.UNAVAILABLE


def diagnose(targets: Sequence[str], tls: Tls | None) -> Diagnosis | None:
    """Return why calls to the first of ``targets`` fail; None if a server listens there and its use
    of TLS is as expected."""
    found = _ADDRESS.fullmatch(targets[0])
    if found is None:
        return None
    host, port = found["host"].strip("[]"), int(found["port"])
    try:
        return asyncio.run(_diagnose(targets[0], host, port, tls))
    except socket.gaierror as error:
        why = (error.strerror or "").lower()
        return Diagnosis(f"the host {host!r} is not found ({why}): check --target")
    except OSError as error:
        others = "".join(f" nor at {each}" for each in targets[1:])
        return Diagnosis(
            f"no orchestrator answers at {targets[0]}{_why(error)}{others}: start a mesh with "
            "'specmesh up', or name another address with --target"
        )


def _why(error: OSError) -> str:
    """Return the reason of ``error`` in parentheses, unless each address has a reason of its
    own."""
    return f" ({os.strerror(error.errno).lower()})" if error.errno else ""


async def _diagnose(target: str, host: str, port: int, tls: Tls | None) -> Diagnosis | None:
    """Raises OSError if nobody listens."""
    async with _connection(host, port):
        pass
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    try:
        async with _connection(host, port, unchecked):
            speaks_tls = True
    except OSError:  # includes ssl.SSLError and TimeoutError
        speaks_tls = False
    if tls is not None and speaks_tls:
        return await _diagnose_certificates(target, host, port, tls)
    if tls is not None:
        return Diagnosis(f"{target} does not use TLS: omit --tls-ca", ExitStatus.DENIED)
    if speaks_tls:
        return Diagnosis(f"{target} uses TLS: --tls-ca is missing", ExitStatus.DENIED)
    return None


async def _diagnose_certificates(target: str, host: str, port: int, tls: Tls) -> Diagnosis | None:
    try:
        async with _connection(host, port, _context(tls), tls.server_name) as reader:
            # In TLS 1.3 a server rejects a client certificate only after the client's handshake.
            async with asyncio.timeout(_VERDICT_S):
                is_welcome = bool(await reader.read(1))
    except ssl.SSLCertVerificationError as error:
        why = f"cannot verify the certificate of {target}: {error.verify_message}"
        return Diagnosis(why, ExitStatus.DENIED)
    except TimeoutError:
        return None
    except OSError:
        is_welcome = False
    if is_welcome:
        return None
    wanted = "another --tls-cert" if tls.certificate_chain else "--tls-cert and --tls-key"
    return Diagnosis(f"{target} requires {wanted}", ExitStatus.DENIED)


@asynccontextmanager
async def _connection(
    host: str, port: int, context: ssl.SSLContext | None = None, name: str | None = None
) -> AsyncIterator[asyncio.StreamReader]:
    """Connect, with a TLS handshake for ``name`` if a ``context`` is given. Raises OSError."""
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


def _context(tls: Tls) -> ssl.SSLContext:
    roots, chain, key = tls.root_certificates, tls.certificate_chain, tls.private_key
    context = ssl.create_default_context(cafile=str(roots) if isinstance(roots, Path) else None)
    if isinstance(chain, Path) and isinstance(key, Path):
        context.load_cert_chain(chain, key, password=lambda: "")
    return context
