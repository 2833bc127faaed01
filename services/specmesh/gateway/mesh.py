"""The gateway's clients of the orchestrators."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specmesh.client import (
    AsyncClient,
    PermissionDenied,
    Timeouts,
    Tls,
    TokenFile,
    Unauthenticated,
)
from specmesh.client.connections.pems import PemTexts
from specmesh.gateway.identity import Door, GuardedDoor, OpenDoor, callers_name, callers_token
from specmesh.gateway.probe import Probe
from specmesh.gateway.settings import GatewaySettings
from specmesh.serving.identity.certificates import Certificate, TlsFiles, watched_certificate
from specmesh.serving.identity.expiry import reported_files
from specmesh.serving.identity.on_behalf import CALLER
from specmesh.serving.identity.roles import ORCHESTRATOR, host_of
from specmesh.serving.identity.watched import UnusableFile, Watched

_NOBODY = ((CALLER, b"gateway"),)
"""Metadata of a call for none of the gateway's callers, whose names have a colon. That it names
somebody shows whether orchestrators let the gateway do so."""
_OPTIONS = (("grpc.http2.bdp_probe", 0),)
"""Keeps flow-control windows at 64 KiB. The probe would let them grow to the bandwidth-delay
product, and gRPC would buffer megabytes of an answer whose client doesn't read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedTls(Tls):
    """TLS with the gateway's certificate, so that calls use what its log and its metric say."""

    certificate: Watched[Certificate]

    def pems(self) -> PemTexts:
        """Return the contents of the certificate's files, the same until they change. Raises
        ``UnusableFile`` if they have never been usable."""
        mine = self.certificate.current()
        return PemTexts(mine.ca, mine.chain, mine.key)


class KnownOrchestrators:
    """The orchestrators in ``settings``. Raises ``UnusableFile`` for an unusable file of a
    certificate or token."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._clients: list[AsyncClient] = []
        self._certificate = _certificate(settings)
        # The metric includes them for as long as somebody refers to them.
        self._reported = self._certificate or reported_files((settings.mesh_ca,))
        self._tls = self._mesh_tls()
        self._bearer = settings.bearer
        self.door, self.probe = self._door_and_probe()

    async def open(self) -> None:
        """Return once callers can be authenticated. Raises ``UnusableFile`` for unusable tokens or
        keys."""
        if self._bearer is not None:
            await self._bearer.open()

    async def aclose(self) -> None:
        """Close the connections."""
        if self._bearer is not None:
            await self._bearer.close()
        for client in self._clients:
            await client.aclose()

    def _door_and_probe(self) -> tuple[Door, Probe]:
        bearer, token_file = self._bearer, self._settings.mesh_token_file
        if bearer is None:
            # Orchestrators that ask for a token mean the callers'.
            anonymous = self._client()
            passing_on = self._client(token=callers_token)
            return OpenDoor(anonymous, passing_on), Probe(anonymous, (PermissionDenied,))
        token = None if token_file is None else _own_token(token_file)
        own = self._client(token=token, metadata=_NOBODY)
        for_callers = self._client(token=token, metadata=callers_name)
        return GuardedDoor(for_callers, bearer), Probe(own, (PermissionDenied, Unauthenticated))

    def _mesh_tls(self) -> Tls | None:
        """Return the TLS of all clients, which has read its files: should they become unusable
        later, those of now stay in use."""
        ca, mine, name = self._settings.mesh_ca, self._certificate, self._orchestrators_name
        if ca is None:
            return None
        own = None if mine is None else CertifiedTls(certificate=mine, server_name=name)
        tls = own or Tls(root_certificates=ca, server_name=name)
        try:
            tls.pems()
        except (OSError, ValueError) as error:
            raise UnusableFile(f"--mesh-ca: {error}") from error
        return tls

    @property
    def _orchestrators_name(self) -> str:
        """The host name that orchestrators' certificates must be for."""
        if self._settings.mesh_trust_domain:
            return host_of(ORCHESTRATOR, self._settings.mesh_trust_domain)
        if self._certificate is None:
            return host_of(ORCHESTRATOR)
        return self._certificate.current().host_of(ORCHESTRATOR)

    def _client(self, **credentials: Any) -> AsyncClient:
        settings = self._settings
        client = AsyncClient(
            *settings.targets,
            tls=self._tls,
            send_token_in_clear_text=settings.plaintext_beyond_loopback,
            timeouts=Timeouts(generate_s=settings.request_seconds),
            channel_options=_OPTIONS,
            share_calls=True,
            # The gateway tells its caller to retry, and leaves the decision to it.
            max_retries=0,
            **credentials,
        )
        self._clients.append(client)
        return client


def _own_token(file: Path) -> TokenFile:
    """Return the source of the gateway's token. The file may be written later: until then the
    gateway is not ready. Raises ``UnusableFile`` for one that is not UTF-8."""
    token = TokenFile(file)
    try:
        token()
    except OSError:
        pass
    except ValueError as error:
        raise UnusableFile(f"--mesh-token-file: {error}") from None
    return token


def _certificate(settings: GatewaySettings) -> Watched[Certificate] | None:
    """Return the gateway's certificate for the mesh, with the CA to verify orchestrators by; None
    if it has none."""
    if settings.mesh_cert is None or settings.mesh_key is None:
        return None
    return watched_certificate(
        TlsFiles(settings.mesh_cert, settings.mesh_key, settings.mesh_ca, "--mesh")
    )
