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
    """Collect the traces of a mesh: receive them over OTLP, sample at the tail, store on disk."""

    model_config = SettingsConfigDict(frozen=True, env_prefix="SPECMESH_TRACES__")

    store: Path = Field(
        default_factory=default_path,
        description="store traces in this file; by default specmesh/traces.sqlite in the user's "
        "state directory",
    )
    host: str = Field("127.0.0.1", description="listen on this address")
    grpc_port: int = Field(
        4317,
        ge=0,
        le=65535,
        description="receive OTLP over gRPC on this port; 0 takes any free one",
    )
    http_port: int = Field(
        4318,
        ge=0,
        le=65535,
        description="receive OTLP over HTTP on this port; 0 takes any free one",
    )
    tls_ca: Path | None = Field(
        None,
        description="require senders of spans to have a certificate signed by the CA in this PEM "
        "file",
    )
    keep: Literal["ratio", "all"] = Field(
        "ratio",
        description="choose the traces to keep: 'ratio' keeps slow and failed traces, and a share "
        "of the others",
    )
    ratio: float = Field(
        TailOptions().ratio,
        ge=0,
        le=1,
        description="keep this share of the traces that are neither slow nor failed",
    )
    slow_ms: float | None = Field(
        None,
        ge=0,
        description="count a trace as slow from this duration on; by default the slowest "
        "twentieth of recent traces of the same strategy are slow",
    )
    slow_quantile: float = Field(
        TailOptions().slow_quantile,
        gt=0,
        lt=1,
        description="count a trace as slow if it is slower than this share of recent ones",
    )
    max_mib: int = Field(
        StoreLimits().max_bytes // _MIB,
        ge=MIN_BYTES // _MIB,
        description="keep the store below this many MiB on disk by deleting the oldest traces",
    )
    max_days: float = Field(7.0, gt=0, description="delete traces older than this many days")
    settle_seconds: float = Field(
        2.0,
        ge=0,
        description="wait this long after the last span of a trace before storing it; later spans "
        "are added to it",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="log messages of this level or above"
    )

    def limits(self) -> StoreLimits:
        """Return the limits of the store."""
        return StoreLimits(max_bytes=self.max_mib * _MIB, max_age_s=self.max_days * 86400)

    def sampler(self) -> Sampler:
        """Return the sampling policy."""
        if self.keep == "all":
            return KeepAll()
        return TailSampler(
            TailOptions(ratio=self.ratio, slow_ms=self.slow_ms, slow_quantile=self.slow_quantile)
        )
