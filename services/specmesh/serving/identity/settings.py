"""Settings of a server's certificate, and of the authentication of its callers."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from specmesh.serving.identity.bearer import Bearer
from specmesh.serving.identity.certificates import TlsFiles
from specmesh.serving.identity.jwts import JsonWebTokens
from specmesh.serving.identity.keys import KeyFile, KeySource, KeyUrl
from specmesh.serving.identity.tokens import StaticTokens
from specmesh.serving.loopback import is_loopback


class PortTlsSettings(BaseSettings):
    """Mixin for every process that listens."""

    help_panel: ClassVar[str] = "TLS"

    model_config = SettingsConfigDict(frozen=True)

    tls_cert: Path | None = Field(
        None,
        description="certificate in PEM, followed by its chain; the port then accepts only TLS",
    )
    tls_key: Path | None = Field(None, description="key of the certificate, in PEM")
    tls_ca: Path | None = Field(
        None,
        description="CA in PEM that signed the mesh's certificates; callers then need a "
        "certificate with a role that may call this process",
    )

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("--tls-cert and --tls-key go together")
        if self.tls_ca is not None and self.tls_cert is None:
            raise ValueError("--tls-ca needs --tls-cert and --tls-key")
        return self

    @property
    def tls(self) -> TlsFiles | None:
        """The files of TLS; None for plain text."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_ca)

    @property
    def requires_certificates(self) -> bool:
        """True if callers must have a certificate."""
        return self.tls_ca is not None


class TlsSettings(PortTlsSettings):
    """Mixin for every process of a mesh that serves."""

    help_panel: ClassVar[str] = "TLS"

    plaintext_beyond_loopback: bool = Field(
        False,
        description="allow listening and calling beyond loopback without TLS, although anybody on "
        "the network path can then read and change everything",
    )

    @property
    def bearer(self) -> Bearer | None:
        """The authentication by tokens; None if no token is required."""
        return None


class BearerSettings(TlsSettings):
    """Mixin for the roles that clients call."""

    help_panel: ClassVar[str] = "Who may call"

    tokens: Path | None = Field(
        None,
        description="JSON file of valid bearer tokens, one of which each call must have: "
        '[{"name": "...", "sha256": "..."}]',
    )
    jwks: Path | None = Field(
        None,
        description="file with a JSON Web Key Set; each call must have a JSON Web Token that one "
        "of its keys signed",
    )
    jwks_url: str = Field(
        "",
        description="URL at which the issuer publishes such a set, fetched every few minutes and "
        "for unknown keys; https, or http on this machine",
    )
    jwt_issuer: str = Field("", description="required claim iss of JSON Web Tokens")
    jwt_audience: str = Field("", description="required member of their claim aud")
    client_certificates: bool = Field(
        True,
        description="with --tls-ca, require a certificate from clients, too; without it they need "
        "a token",
    )

    @model_validator(mode="after")
    def _check_jwt(self) -> Self:
        if self.jwks is not None and self.jwks_url:
            raise ValueError("--jwks and --jwks-url can't be combined")
        given = [
            self.jwks is not None or bool(self.jwks_url),
            bool(self.jwt_issuer),
            bool(self.jwt_audience),
        ]
        if any(given) and not all(given):
            raise ValueError("--jwks or --jwks-url, --jwt-issuer and --jwt-audience go together")
        return self

    @model_validator(mode="after")
    def _check_client_certificates(self) -> Self:
        if self.client_certificates:
            return self
        if self.tls_ca is None:
            raise ValueError("--no-client-certificates needs --tls-ca: nothing else asks for them")
        if not self.requires_tokens:
            raise ValueError(
                "--no-client-certificates needs --tokens, --jwks or --jwks-url: without any of "
                "them everybody may call"
            )
        return self

    @model_validator(mode="after")
    def _check_jwks_url(self) -> Self:
        if not self.jwks_url:
            return self
        try:
            url = urlsplit(self.jwks_url)
        except ValueError:  # it repeats the URL
            raise ValueError("--jwks-url is not a URL") from None
        if "@" in url.netloc:
            raise ValueError("--jwks-url can't have a user name or a password: keys are public")
        if url.scheme not in {"http", "https"} or not url.hostname:
            shown = self.jwks_url.rpartition("@")[2]  # before it there may be a password
            raise ValueError(f"--jwks-url: {shown} is not an https:// URL")
        trusted = is_loopback(url.hostname) or self.plaintext_beyond_loopback
        if url.scheme == "http" and not trusted:
            raise ValueError(
                "--jwks-url must be https beyond this machine: anybody who can change the keys on "
                "the way can forge tokens"
            )
        return self

    @property
    def requires_tokens(self) -> bool:
        """True if callers must have a token."""
        return self.tokens is not None or self.jwks is not None or bool(self.jwks_url)

    @property
    def requires_certificates(self) -> bool:
        """True if callers must have a certificate."""
        return super().requires_certificates and self.client_certificates

    @property
    def bearer(self) -> Bearer | None:
        """The authentication by tokens; None if no token is required."""
        if not self.requires_tokens:
            return None
        tokens = StaticTokens(self.tokens) if self.tokens else None
        keys = self._keys
        jwts = JsonWebTokens(keys, self.jwt_issuer, self.jwt_audience) if keys else None
        return Bearer(tokens, jwts)

    @property
    def _keys(self) -> KeySource | None:
        if self.jwks is not None:
            return KeyFile(self.jwks)
        return KeyUrl(self.jwks_url) if self.jwks_url else None
