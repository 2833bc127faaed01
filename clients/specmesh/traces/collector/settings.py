"""Settings of the collector."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from specmesh.serving.identity.settings import PortTlsSettings
from specmesh.traces.collector.sampling import KeepAll, Sampler, TailOptions, TailSampler
from specmesh.traces.store.limits import MIN_BYTES, StoreLimits
from specmesh.traces.store.schema import default_path

_MIB = 1024 * 1024


class CollectorSettings(PortTlsSettings):
    """Keeps the traces of a mesh: receives them over OTLP, samples at the tail, stores on disk."""

    model_config = SettingsConfigDict(frozen=True, env_prefix="SPECMESH_TRACES__")

    store: Path = Field(
        default_factory=default_path,
        description="file to keep traces in; by default specmesh/traces.sqlite in the user's "
        "state directory",
    )
    host: str = Field("127.0.0.1", description="address to listen on")
    grpc_port: int = Field(
        4317, ge=0, le=65535, description="port of OTLP over gRPC; 0 takes any free one"
    )
    http_port: int = Field(
        4318, ge=0, le=65535, description="port of OTLP over HTTP; 0 takes any free one"
    )
    tls_ca: Path | None = Field(
        None,
        description="CA in PEM; whoever sends spans must then have a certificate that it signed",
    )
    keep: Literal["ratio", "all"] = Field(
        "ratio", description="'ratio' keeps slow and failed traces, and a share of the others"
    )
    ratio: float = Field(TailOptions().ratio, ge=0, le=1, description="that share")
    slow_ms: float | None = Field(
        None,
        ge=0,
        description="duration from which a trace is slow; by default the slowest twentieth of "
        "recent ones of the same strategy",
    )
    slow_quantile: float = Field(
        TailOptions().slow_quantile,
        gt=0,
        lt=1,
        description="share of recent traces that a slow one is slower than",
    )
    max_mib: int = Field(
        StoreLimits().max_bytes // _MIB,
        ge=MIN_BYTES // _MIB,
        description="size of the store on disk in MiB, never exceeded: the oldest traces go",
    )
    max_days: float = Field(7.0, gt=0, description="age at which a trace goes")
    settle_seconds: float = Field(
        2.0,
        ge=0,
        description="how long to wait for more spans after the last one of a trace; later ones "
        "are added to it",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least level that is logged"
    )

    def limits(self) -> StoreLimits:
        """How much the store may hold."""
        return StoreLimits(max_bytes=self.max_mib * _MIB, max_age_s=self.max_days * 86400)

    def sampler(self) -> Sampler:
        """What decides which traces are kept."""
        if self.keep == "all":
            return KeepAll()
        return TailSampler(
            TailOptions(ratio=self.ratio, slow_ms=self.slow_ms, slow_quantile=self.slow_quantile)
        )
