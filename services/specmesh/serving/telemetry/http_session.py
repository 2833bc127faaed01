"""The HTTP session of exporters."""

from __future__ import annotations

import os
from typing import Any

import requests

_PROVIDER = "OTEL_PYTHON_EXPORTER_OTLP_HTTP_{}CREDENTIAL_PROVIDER"


class TrustingSession(requests.Session):
    """A session that trusts the CA that its ``verify`` names, whatever the environment names.

    By itself requests prefers ``REQUESTS_CA_BUNDLE``, which is meant for other programs, to
    ``OTEL_EXPORTER_OTLP_CERTIFICATE``.
    """

    def merge_environment_settings(
        self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any
    ) -> dict[str, Any]:
        """Return the settings of a request; of the environment those that are not set."""
        chosen = self.verify if verify is None else verify
        return super().merge_environment_settings(url, proxies, stream, chosen, cert)


def exporter_session(signal: str) -> requests.Session | None:
    """Return the session for the exporter of ``signal``; None if a provider of credentials, which
    the environment names, makes it."""
    provided = (_PROVIDER.format(""), _PROVIDER.format(f"{signal}_"))
    return None if any(map(os.environ.get, provided)) else TrustingSession()
