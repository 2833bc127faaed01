"""Settings of the gateway."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from specmesh.client.connections.addresses import with_port
from specmesh.serving.identity.roles import TRUST_DOMAIN
from specmesh.serving.identity.settings import BearerSettings
from specmesh.serving.settings import MAX_PORT, WorkersSettings

_ORIGIN = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")


class GatewaySettings(BearerSettings, WorkersSettings):
    """Serve OpenAI's API over HTTP, with answers from orchestrators.

    Without --tokens, --jwks and --jwks-url, callers' bearer tokens are passed on to the
    orchestrators.
    """

    model_config = SettingsConfigDict(env_prefix="SPECMESH_GATEWAY__")

    port: int = Field(
        8000, ge=0, le=MAX_PORT, description="port to listen on; 0 takes any free one"
    )
    orchestrators: str = Field(
        "127.0.0.1:50051",
        description="addresses of orchestrators, host or host:port each, comma-separated",
    )
    max_request_bytes: int = Field(
        8 * 2**20, ge=1024, le=2**30, description="largest request body that is accepted"
    )
    max_held_bytes: int = Field(
        64 * 2**20,
        ge=1024,
        le=2**40,
        description="limit on the bytes of all running requests: of bodies, of what each answer is "
        "asked for with, and for each log-probability 32 of a prompt and 128 of an answer; one "
        "caller holds at most three quarters, and they take up to six times as much memory",
    )
    max_connections: int = Field(
        1000, ge=1, le=1_000_000, description="limit on concurrent client connections"
    )
    max_connections_per_address: int | None = Field(
        None,
        ge=1,
        description="limit on the connections of one IPv4 address or IPv6 /64 network; by default "
        "no other limit, since a proxy in front of the gateway has one address",
    )
    max_answers: int = Field(
        64, ge=1, le=1024, description="limit on the answers of one request: prompts times n"
    )
    request_seconds: float = Field(
        600.0, gt=0, le=86_400, description="timeout of an answer, including its time in the queue"
    )
    ping_seconds: float = Field(
        15.0,
        gt=0,
        le=3600,
        description="time without an event after which a stream sends a comment as a keepalive",
    )
    served_model_name: str = Field(
        "",
        description="further names under which the mesh's model can be asked for and is listed, "
        "comma-separated; answers have the name that was asked for",
    )
    cors_origins: str = Field(
        "",
        description="origins whose pages may call from a browser (CORS), comma-separated, such as "
        "https://chat.example.com; none by default",
    )
    mesh_ca: Path | None = Field(
        None,
        description="CA in PEM that signed the orchestrators' certificates; calls then use TLS",
    )
    mesh_cert: Path | None = Field(
        None,
        description="certificate in PEM, with the role gateway, to present to orchestrators",
    )
    mesh_key: Path | None = Field(None, description="key of that certificate, in PEM")
    mesh_trust_domain: str = Field(
        "",
        pattern=r"^[A-Za-z0-9._-]*$",
        description="trust domain of the orchestrators' certificates; by default that of "
        f"--mesh-cert, else {TRUST_DOMAIN}",
    )
    mesh_token_file: Path | None = Field(
        None,
        description="file with the gateway's own bearer token for orchestrators; needs --tokens, "
        "--jwks or --jwks-url, so that the gateway authenticates its callers",
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
                "--mesh-token-file needs --tokens, --jwks or --jwks-url: without them anybody "
                "could use the gateway's token"
            )
        return self

    @field_validator("orchestrators")
    @classmethod
    def _check_orchestrators(cls, addresses: str) -> str:
        """Return the addresses, each with a port."""
        targets = list(map(with_port, _listed(addresses)))
        if not targets:
            raise ValueError("must name at least one address")
        return ",".join(targets)

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, origins: str) -> str:
        for origin in _listed(origins):
            if _ORIGIN.fullmatch(origin) is None:
                raise ValueError(
                    f"{origin!r} is not an origin as browsers send it: https://host or "
                    "http://host:port, in lower case and without a path"
                )
        return origins

    @property
    def targets(self) -> list[str]:
        """The orchestrators' addresses, each host:port."""
        return _listed(self.orchestrators)

    @property
    def further_names(self) -> list[str]:
        """The names of the model beside its own."""
        return _listed(self.served_model_name)

    @property
    def browsers_origins(self) -> list[str]:
        """The origins whose pages may call."""
        return _listed(self.cors_origins)


def _listed(joined: str) -> list[str]:
    return [each.strip() for each in joined.split(",") if each.strip()]
