"""Access control at the port of a gRPC server: its TLS and the callers' credentials."""

from __future__ import annotations

import logging

import grpc

from specmesh.serving.identity.certificates import server_credentials, watched_certificate
from specmesh.serving.identity.guard import Guard
from specmesh.serving.identity.plaintext import check_plaintext
from specmesh.serving.identity.watched import UnusableFile
from specmesh.serving.settings import ProcessSettings
from specmesh.serving.startup import CannotStart

log = logging.getLogger(__name__)


class GuardedPort:
    """The certificate of a port, and the guard of its calls."""

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings
        self._bearer = settings.bearer
        self._certificate = None if settings.tls is None else watched_certificate(settings.tls)
        self.guard = Guard(
            certificate=self._certificate if settings.requires_certificates else None,
            bearer=self._bearer,
            # Plain text is served only on loopback or by the operator's flag: trust all callers.
            believes_anybody=settings.tls is None,
        )

    async def open(self) -> grpc.ServerCredentials | None:
        """Return the port's credentials, or None for plain text, once callers can be authenticated.

        Raises ``CannotStart``.
        """
        try:
            if self._bearer is not None:
                await self._bearer.open()
            return self._credentials()
        except UnusableFile as error:
            raise CannotStart(str(error)) from error

    async def close(self) -> None:
        """Release what ``open`` acquired."""
        if self._bearer is not None:
            await self._bearer.close()

    def _credentials(self) -> grpc.ServerCredentials | None:
        settings = self._settings
        if self._certificate is None:
            check_plaintext(settings)
            return None
        if settings.requires_certificates and not self._certificate.current().trust_domain:
            reason = f"{settings.tls_cert} has no specmesh SPIFFE id"
            log.warning("callers of any trust domain are let in", extra={"reason": reason})
        return server_credentials(self._certificate, require_clients=settings.requires_certificates)
