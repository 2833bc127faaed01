"""The command line of ``specmesh certs``, also ``python -m specmesh.serving.certs``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from specmesh.serving.certs.authority import CA_DAYS, CertificateSubject
from specmesh.serving.certs.folder import CA, KEY, FolderError, bearers, make, renew
from specmesh.serving.identity.roles import CLIENT, ROLES, TRUST_DOMAIN
from specmesh.serving.loopback import is_ip
from specmesh.serving.process.typer_app import App

app = App()

NAME = r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*"

USE = """\
Each process of the mesh:  --tls-cert {0}/ROLE.pem --tls-key {0}/ROLE-key.pem --tls-ca {0}/ca.pem
A client:                  the same with ROLE = client
Keep {0}/ca-key.pem off these machines: it can sign certificates for any role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedNames:
    """The bearers of certificates besides the mesh's roles, and their names."""

    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name (also *.NAME) or IP address at which clients reach orchestrators and "
            "gateways, besides loopback; may be repeated."
        ),
    ] = None
    client: Annotated[
        list[str] | None,
        typer.Option(help="Name of a client with its own identity; may be repeated."),
    ] = None
    service: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=HOST,...",
            help="A server outside the mesh's roles, such as Redis or the trace collector, and its "
            "host names; may be repeated.",
        ),
    ] = None
    trust_domain: Annotated[
        str | None,
        typer.Option(
            help="Trust domain of the SPIFFE ids. It separates meshes whose certificates the same "
            "CA signs.",
            show_default=TRUST_DOMAIN,
        ),
    ] = None

    def bearers(self) -> dict[str, CertificateSubject]:
        """Return whom to certify. Raises BadParameter."""
        return bearers(
            self.domain,
            [_host(each, "--host") for each in self.host or ()],
            [_client(each, "--client") for each in self.client or ()],
            dict(_service(each, "--service") for each in self.service or ()),
        )

    @property
    def domain(self) -> str:
        """The trust domain. Raises BadParameter."""
        name = TRUST_DOMAIN if self.trust_domain is None else self.trust_domain
        return _name(name, "--trust-domain").lower()


@app.command()
def main(
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    *,
    names: CertifiedNames,
    days: Annotated[
        int, typer.Option(min=1, max=CA_DAYS, help="Validity of the certificates, in days.")
    ] = 90,
    renew_: Annotated[
        bool,
        typer.Option("--renew", help="Reissue all certificates with the CA that is there."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the CA and all certificates.")
    ] = False,
) -> None:
    """Make a development CA and a certificate for each role of a mesh."""
    if renew_ and force:
        raise typer.BadParameter("--renew and --force can't be combined")
    if renew_ and names != CertifiedNames():
        raise typer.BadParameter(
            "--renew can't change hosts, clients, services or the trust domain"
        )
    certified, valid = names.bearers(), timedelta(days=days)
    try:
        if renew_:
            written = renew(out, valid)
        else:
            written = make(out, names.domain, certified, valid, force=force)
    except (FolderError, OSError) as error:
        typer.echo(f"specmesh: {error}", err=True)
        raise typer.Exit(1) from error
    for path in written:
        typer.echo(f"{path} and {path.stem}{KEY}")
    typer.echo(USE.format(out))


def _host(host: str, option: str) -> str:
    """Return ``host`` if a client can find it in a certificate. Raises BadParameter."""
    if not is_ip(host) and not re.fullmatch(NAME, host.removeprefix("*.")):
        said = f"{host!r} must be a host name in ASCII (xn--...) without a port, or an IP address"
        raise typer.BadParameter(said, param_hint=option)
    return host


def _client(name: str, option: str) -> str:
    if f"-{name}.pem".endswith(KEY):
        said = f"the certificate of {name!r} would overwrite another's key"
        raise typer.BadParameter(said, param_hint=option)
    return _name(name, option)


def _service(text: str, option: str) -> tuple[str, list[str]]:
    name, _, hosts = text.partition("=")
    if name in ROLES or name.startswith(f"{CLIENT}-") or name == CA:
        raise typer.BadParameter(f"{name!r} has a certificate already", param_hint=option)
    return _client(name, option), [_host(each, option) for each in (hosts or name).split(",")]


def _name(name: str, option: str) -> str:
    if not re.fullmatch(NAME, name):
        said = f"{name!r} must be letters, digits, '-', '_' and single dots"
        raise typer.BadParameter(said, param_hint=option)
    return name


if __name__ == "__main__":
    app(prog_name="specmesh certs")
