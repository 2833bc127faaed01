"""Settings of the gateway."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from specmesh.serving.identity.roles import TRUST_DOMAIN
from specmesh.serving.identity.settings import BearerSettings
from specmesh.serving.settings import MAX_PORT, ProcessSettings

_ORIGIN = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")


class GatewaySettings(BearerSettings, ProcessSettings):
    """Serves OpenAI's API over HTTP: answers come from orchestrators.

    Without --tokens, --jwks and --jwks-url, callers' bearer tokens are passed on to the
    orchestrators.
    """

    model_config = SettingsConfigDict(env_prefix="SPECMESH_GATEWAY__")

    port: int = Field(
        8000, ge=0, le=MAX_PORT, description="port to listen on; 0 takes any free one"
    )
    orchestrators: str = Field(
        "127.0.0.1:50051", description="addresses of orchestrators, comma-separated"
    )
    max_request_bytes: int = Field(
        8 * 2**20, ge=1024, le=2**30, description="largest body that is taken in"
    )
    max_held_bytes: int = Field(
        64 * 2**20,
        ge=1024,
        le=2**40,
        description="bodies and prompts of all requests under way, in bytes, a prompt once for "
        "each of its choices; the process takes up to six times as much memory for them",
    )
    max_connections: int = Field(
        1000, ge=1, le=1_000_000, description="connections that clients may have open at once"
    )
    max_connections_per_address: int | None = Field(
        None,
        ge=1,
        description="how many of them one address may have, of IPv6 one /64 network; by default "
        "all, since a proxy in front of the gateway has one address",
    )
    max_answers: int = Field(
        64, ge=1, le=1024, description="answers that one request may ask for: prompts times n"
    )
    request_seconds: float = Field(
        600.0, gt=0, le=86_400, description="how long an answer may take, its wait included"
    )
    ping_seconds: float = Field(
        15.0,
        gt=0,
        le=3600,
        description="how long a stream may be silent before a comment shows that it lives",
    )
    cors_origins: str = Field(
        "",
        description="origins whose pages may call from a browser, comma-separated, such as "
        "https://chat.example.com; none by default",
    )
    mesh_ca: Path | None = Field(
        None, description="CA in PEM that signs the orchestrators' certificates: calls use TLS"
    )
    mesh_cert: Path | None = Field(
        None, description="certificate in PEM, of the role gateway, for orchestrators to see"
    )
    mesh_key: Path | None = Field(None, description="key of that certificate, in PEM")
    mesh_trust_domain: str = Field(
        "",
        pattern=r"^[A-Za-z0-9._-]*$",
        description="trust domain of the orchestrators' certificates; by default that of "
        f"--mesh-cert, without one {TRUST_DOMAIN}",
    )
    mesh_token_file: Path | None = Field(
        None,
        description="file with the bearer token that orchestrators are shown, for all callers "
        "that --tokens, --jwks or --jwks-url let in",
    )

    @model_validator(mode="after")
    def _check_mesh(self) -> Self:
        if (self.mesh_cert is None) != (self.mesh_key is None):
            raise ValueError("--mesh-cert and --mesh-key go together")
        if self.mesh_cert is not None and self.mesh_ca is None:
            raise ValueError("--mesh-cert needs --mesh-ca")
        if self.mesh_trust_domain and self.mesh_ca is None:
            raise ValueError("--mesh-trust-domain needs --mesh-ca")
        if self.mesh_token_file is not None and not self.requires_tokens:
            raise ValueError(
                "--mesh-token-file needs --tokens, --jwks or --jwks-url: anybody could call with it"
            )
        if not self.targets:
            raise ValueError("--orchestrators names none")
        return self

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, origins: str) -> str:
        for origin in _listed(origins):
            if _ORIGIN.fullmatch(origin) is None:
                raise ValueError(
                    f"{origin!r} is no origin: one is written as browsers send it, "
                    "https://host or http://host:port, in small letters and without a path"
                )
        return origins

    @property
    def targets(self) -> list[str]:
        """Each orchestrator, host:port."""
        return _listed(self.orchestrators)

    @property
    def browsers_origins(self) -> list[str]:
        """Each origin whose pages may call."""
        return _listed(self.cors_origins)


def _listed(joined: str) -> list[str]:
    return [each.strip() for each in joined.split(",") if each.strip()]
