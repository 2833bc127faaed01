"""Settings of a process: one definition gives environment variables and command line.

A role's variables start with its name and two underscores, since Kubernetes sets variables such as
``SPECMESH_VERIFIER_PORT=tcp://10.0.0.1:50061`` in every container for a Service called
``specmesh-verifier``. A Service's name can't end in a hyphen, so none leads to
``SPECMESH_VERIFIER__PORT``.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import sys
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from specmesh.serving.identity.settings import TlsSettings
from specmesh.serving.identity.watched import UnusableFile
from specmesh.serving.rpc.intake import MAX_HELD_BYTES, MAX_REQUEST_BYTES
from specmesh.serving.store.redis_url import check_redis_url, is_tls

DEFAULT_PREFIX = "specmesh"
"""The default prefix of keys in Redis."""

INJECTED = re.compile(r"\b(tcp|udp|sctp)://")
"""Matches the values that Kubernetes injects for a Service's port, and no valid setting."""

_ADDRESS = re.compile(r"((\[[\da-fA-F:.]+\]|[^\s:\[\]/]+):)?\d{1,5}", re.ASCII)
MAX_PORT = 65535
MAX_WORKERS = 256


def host_pid() -> str:
    """Return a name for this process; in Kubernetes the host name is the pod's."""
    return f"{socket.gethostname()}-{os.getpid()}"


def _check_address(address: str) -> str:
    """Refuse an address that is neither host:port nor a port."""
    if not _ADDRESS.fullmatch(address) or int(address.rpartition(":")[2]) > MAX_PORT:
        raise ValueError(f"must be a port of at most {MAX_PORT}, or host:port")
    return address


class ProcessSettings(TlsSettings):
    """Settings of every server process.

    A role subclasses it, adds fields and sets ``env_prefix``, which ends in two underscores.
    """

    help_panel: ClassVar[str] = "Process"

    model_config = SettingsConfigDict(frozen=True)

    host: str = Field(
        "127.0.0.1", description="address to listen on; 0.0.0.0 for every IPv4 interface"
    )
    port: int = Field(0, ge=0, le=MAX_PORT, description="port to listen on; 0 takes any free one")
    name: str = Field(
        default_factory=host_pid,
        min_length=1,
        description="name of this instance in logs, traces and routing",
    )
    # No "metrics_port": a Service called specmesh-verifier--metrics would set its variable.
    metrics_address: Annotated[str, AfterValidator(_check_address)] | None = Field(
        None,
        description="address of /metrics and /healthz over plain HTTP: host:port, or a port on "
        "--host; port 0 takes any free one; by default they are not served",
    )
    probe_address: Annotated[str, AfterValidator(_check_address)] | None = Field(
        None,
        description="address of gRPC health checks (startup, liveness, readiness) in plain text, "
        "for probes without a certificate: host:port, or a port on --host; port 0 takes any free "
        "one; by default they are not served in plain text",
    )
    drain_delay_seconds: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="time after SIGTERM in which new calls are still accepted while health reports "
        "NOT_SERVING, so that callers and load balancers can notice",
    )
    drain_seconds: float = Field(10.0, ge=0, description="time that running calls then have to end")
    max_request_bytes: int = Field(
        MAX_REQUEST_BYTES, ge=1024, le=2**30, description="largest request that is accepted"
    )
    max_held_bytes: int = Field(
        MAX_HELD_BYTES,
        ge=1024,
        le=2**40,
        description="limit on the bytes of all running requests, without those that have not "
        "arrived whole; they take up to five times as much memory",
    )
    stall_seconds: float = Field(
        30.0, gt=0, description="time after which a client that does not read is cut off"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest level that is logged"
    )

    @property
    def shares_port(self) -> bool:
        """Return whether other processes listen on the same port."""
        return False

    @property
    def metrics_at(self) -> tuple[str, int] | None:
        """Host and port of ``metrics_address``."""
        return self._at(self.metrics_address)

    @property
    def probe_at(self) -> tuple[str, int] | None:
        """Host and port of ``probe_address``."""
        return self._at(self.probe_address)

    def _at(self, address: str | None) -> tuple[str, int] | None:
        if address is None:
            return None
        host, _, port = address.rpartition(":")
        return host.strip("[]") or self.host, int(port)

    @model_validator(mode="after")
    def _check_ports(self) -> Self:
        places = {
            "--port": (self.host, self.port),
            "--metrics-address": self.metrics_at,
            "--probe-address": self.probe_at,
        }
        for (one, at), (other, there) in combinations(places.items(), 2):
            if at is not None and at == there and at[1]:
                raise ValueError(f"{one} and {other} need different ports, not both {at[1]}")
        return self

    @model_validator(mode="after")
    def _check_held(self) -> Self:
        if self.max_held_bytes < self.max_request_bytes:
            raise ValueError("--max-held-bytes must be at least --max-request-bytes")
        return self

    @field_validator("*", mode="before")
    @classmethod
    def _check_not_injected(cls, value: object) -> object:
        if isinstance(value, str) and INJECTED.search(value):
            raise ValueError("looks like a variable that Kubernetes injects for a Service")
        return value


class WorkersSettings(ProcessSettings):
    """Settings of processes of which several may share a port."""

    help_panel: ClassVar[str] = "Process"

    workers: int = Field(
        1,
        ge=1,
        le=MAX_WORKERS,
        description="number of processes that share the port, each with a core's worth of work; "
        "all limits are for each of them, and worker I, counted from 0, serves metrics at the "
        "port of --metrics-address plus I",
    )

    @property
    def shares_port(self) -> bool:
        """Return whether other processes listen on the same port."""
        return self.workers > 1

    def of_worker(self, number: int, port: int, probe_port: int | None) -> Self:
        """Return the settings of a worker that listens on these ports."""
        changes: dict[str, object] = {"name": f"{self.name}-{number}", "port": port}
        if self.metrics_at is not None:
            host, first = self.metrics_at
            changes["metrics_address"] = _joined(host, first + number if first else 0)
        if self.probe_at is not None and probe_port is not None:
            changes["probe_address"] = _joined(self.probe_at[0], probe_port)
        return self.model_copy(update=changes)

    @model_validator(mode="after")
    def _check_workers(self) -> Self:
        if self.workers > 1 and sys.platform != "linux":
            raise ValueError("--workers above 1 needs Linux, where processes can share a port")
        last = self.workers - 1
        if self.metrics_at is not None and self.metrics_at[1] + last > MAX_PORT:
            raise ValueError(
                f"--metrics-address: worker {last} of --workers would need port "
                f"{self.metrics_at[1] + last}, but the highest is {MAX_PORT}"
            )
        return self


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ServerSettings(ProcessSettings):
    """Settings of every gRPC server."""

    help_panel: ClassVar[str] = "Connections"

    max_concurrent_streams: int = Field(
        1024,
        ge=1,
        lt=2**31,
        description="limit on open calls per connection, each of which may carry many requests; "
        "further calls wait at the client",
    )
    max_connection_age_seconds: float | None = Field(
        None,
        gt=0,
        le=2**31 / 1e3,
        description="age, plus or minus 10 %, at which a connection is closed so that the client "
        "looks the servers' addresses up again; by default never",
    )
    max_connection_grace_seconds: float = Field(
        600.0,
        gt=0,
        le=2**31 / 1e3,
        description="time that calls on such a connection have to end before they are cancelled",
    )


@dataclass(frozen=True, slots=True)
class RedisTls:
    """PEM files for ``rediss://`` and ``rediss+sentinel://``: the CA to trust, by default the
    system's, and, if Redis requires them, a certificate and its key."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def check(self) -> None:
        """Check that the files can be read. Raises ``UnusableFile``, which names the option; the
        Redis client would only report each failed connection."""
        context = ssl.create_default_context()
        try:
            if self.ca is not None:
                context.load_verify_locations(self.ca)
        except OSError as error:
            raise UnusableFile(f"--redis-ca {self.ca} can't be used: {error}") from error
        try:
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except OSError as error:
            files = f"--redis-cert {self.cert} with --redis-key {self.key}"
            raise UnusableFile(f"{files} can't be used: {error}") from error


class RedisSettings(BaseSettings):
    """Mixin for the roles that use Redis; its variables, such as ``REDIS_URL``, have no prefix."""

    help_panel: ClassVar[str] = "Redis"

    model_config = SettingsConfigDict(frozen=True)

    redis_url: Annotated[str, AfterValidator(check_redis_url)] | None = Field(
        None,
        # pydantic reads an alias without the class's prefix.
        validation_alias="redis_url",
        description="URL of the Redis that stores sessions; redis+sentinel://HOST:PORT,.../SERVICE "
        "asks Sentinels for the primary; without it, answers cannot be resumed",
    )
    redis_prefix: str = Field(
        DEFAULT_PREFIX,
        pattern=r"^[\w.-]+$",
        validation_alias="redis_prefix",
        description="prefix of every key in Redis: the same throughout a mesh, and different in "
        "meshes that share a Redis",
    )
    redis_ca: Path | None = Field(
        None,
        validation_alias="redis_ca",
        description="CA in PEM that signed the certificate of a rediss:// Redis; by default the "
        "system's",
    )
    redis_cert: Path | None = Field(
        None,
        validation_alias="redis_cert",
        description="certificate in PEM for a Redis that requires one",
    )
    redis_key: Path | None = Field(
        None, validation_alias="redis_key", description="key of that certificate, in PEM"
    )

    @model_validator(mode="after")
    def _check_redis_tls(self) -> Self:
        if (self.redis_cert is None) != (self.redis_key is None):
            raise ValueError("--redis-cert and --redis-key go together")
        if self.redis_tls != RedisTls() and not is_tls(self.redis_url or ""):
            raise ValueError("--redis-ca and --redis-cert need a rediss:// URL")
        return self

    @property
    def redis_tls(self) -> RedisTls:
        """The TLS files for connections to Redis."""
        return RedisTls(self.redis_ca, self.redis_cert, self.redis_key)
