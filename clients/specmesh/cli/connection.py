"""Connection options of all commands that call a mesh: targets, TLS and tokens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from specmesh.client import Tls, TokenFile
from specmesh.client.connections.addresses import with_port
from specmesh.client.connections.credentials import is_loopback, is_token
from specmesh.client.connections.pems import UnusablePem


def _with_ports(targets: Sequence[str]) -> list[str]:
    try:
        return list(map(with_port, targets))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Targets = Annotated[
    list[str],
    typer.Option(
        "--target",
        "-t",
        envvar="SPECMESH_TARGET",
        callback=_with_ports,
        help="Call this orchestrator (host:port); repeat the option for several.",
    ),
]
_PANEL = "Authentication"
_OPTIONS = {
    "root_certificates": "--tls-ca",
    "certificate_chain": "--tls-cert",
    "private_key": "--tls-key",
}
"""The options by the fields of ``Tls`` that they fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The files with which a client authenticates the mesh and itself."""

    tls_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="SPECMESH_TLS_CA",
            exists=True,
            help="Turn on TLS and trust the CA certificates in this PEM file.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            envvar="SPECMESH_TLS_CERT",
            exists=True,
            help="Present the client certificate in this PEM file (mTLS).",
            rich_help_panel=_PANEL,
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        typer.Option(
            envvar="SPECMESH_TLS_KEY",
            exists=True,
            help="Read the key of --tls-cert from this PEM file.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="SPECMESH_TOKEN_FILE",
            exists=True,
            help="Send the bearer token in this file; or set SPECMESH_TOKEN to the token itself.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def client_options(self, targets: Sequence[str]) -> dict[str, Any]:
        """Return the keyword arguments of ``Client`` and ``AsyncClient`` that call ``targets``.
        Raises BadParameter."""
        # Otherwise gRPC would log each failed handshake, which our one-line error already reports.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        ca, cert, key = self.tls_ca, self.tls_cert, self.tls_key
        if (cert is None) != (key is None):
            raise typer.BadParameter("requires --tls-key, and vice versa", param_hint="--tls-cert")
        tls = None
        if ca or cert:
            tls = Tls(root_certificates=ca, certificate_chain=cert, private_key=key)
            try:
                tls.pems()
            except UnusablePem as error:
                raise typer.BadParameter(error.why, param_hint=_OPTIONS[error.field]) from None
            except OSError as error:
                why = f"cannot read a certificate or key: {error}"
                hint = "--tls-ca" if cert is None else "--tls-ca, --tls-cert or --tls-key"
                raise typer.BadParameter(why, param_hint=hint) from None
        token = self.token()
        if token and tls is None and not all(map(is_loopback, targets)):
            raise typer.BadParameter("a token is not sent in clear text: pass --tls-ca as well")
        return {"tls": tls, "token": token}

    def token(self) -> str | TokenFile | None:
        """Return the bearer token, or a source that reads its file again when that changes. Raises
        BadParameter."""
        return _token_in_environment() if self.token_file is None else _token_of(self.token_file)


def _token_of(file: Path) -> TokenFile:
    """Return a source that reads the token again whenever ``file`` changes. Raises BadParameter."""
    source = TokenFile(file)
    try:
        held = source()
    except (OSError, ValueError) as error:
        why = f"cannot read the token: {error}"
        raise typer.BadParameter(why, param_hint="--token-file") from None
    if not is_token(held):
        raise typer.BadParameter(f"{file} does not hold a token", param_hint="--token-file")
    return source


def _token_in_environment() -> str | None:
    """Return the value of SPECMESH_TOKEN; None if it is empty or not set. Raises BadParameter."""
    token = os.environ.get("SPECMESH_TOKEN")
    if token and not is_token(token):
        raise typer.BadParameter("a token must be printable ASCII", param_hint="SPECMESH_TOKEN")
    return token or None
