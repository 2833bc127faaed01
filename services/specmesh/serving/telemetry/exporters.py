"""OpenTelemetry exporters, configured by the standard environment variables.

Unlike the OpenTelemetry SDK itself, nothing is sent unless an endpoint or an exporter is set:
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry.sdk.environment_variables import (
    OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE,
)
from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricExporter

from specmesh.serving.telemetry.environment import GRPC, HTTP, Signal, mistakes

if TYPE_CHECKING:  # Its import may fail at a variable that ``check_environment`` refuses.
    from opentelemetry.sdk.trace.export import SpanExporter

_SIGNALS: Sequence[Signal] = ("TRACES", "METRICS")


class InvalidTelemetry(ValueError):
    """A variable asks for an unsupported exporter, protocol or sampler, or has a wrong value; the
    message names it."""


def check_environment() -> None:
    """Raise `InvalidTelemetry` if a variable that takes effect asks for what there is not, or has a
    wrong value."""
    known = {signal: _protocol(signal) for signal in _SIGNALS}
    protocols = {signal: protocol for signal, protocol in known.items() if protocol is not None}
    for mistake in mistakes(os.environ, protocols):
        raise InvalidTelemetry(mistake)


def span_exporter() -> SpanExporter | None:
    """Return the exporter of spans; None without one. Raises `InvalidTelemetry`."""
    match _protocol("TRACES"):
        case None:
            return None
        case "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter()
        case _:
            from opentelemetry.exporter.otlp.proto.http import trace_exporter as over_http

            from specmesh.serving.telemetry.http_session import exporter_session

            return over_http.OTLPSpanExporter(session=exporter_session("TRACES"))


def metric_exporter() -> MetricExporter | None:
    """Return the exporter of metrics; None without one. Raises `InvalidTelemetry`."""
    match _protocol("METRICS"):
        case None:
            return None
        case "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

            return OTLPMetricExporter()
        case _:
            from opentelemetry.exporter.otlp.proto.http import metric_exporter as over_http

            from specmesh.serving.telemetry.http_session import exporter_session

            return over_http.OTLPMetricExporter(session=exporter_session("METRICS"))


def histogram_temporality() -> AggregationTemporality:
    """Return what the exporter of metrics prefers for histograms."""
    preference = os.environ.get(OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE, "")
    is_delta = preference.strip().upper() in {"DELTA", "LOWMEMORY"}
    return AggregationTemporality.DELTA if is_delta else AggregationTemporality.CUMULATIVE


def certificate_files() -> Sequence[Path]:
    """Return the certificate files for calls to collectors: client certificates and trusted CAs.

    Raises `InvalidTelemetry`.
    """
    given = os.environ.get
    files = [
        given(f"OTEL_EXPORTER_OTLP_{signal}_{kind}") or given(f"OTEL_EXPORTER_OTLP_{kind}")
        for signal in _SIGNALS
        if _is_asked_for(signal)
        for kind in ("CERTIFICATE", "CLIENT_CERTIFICATE")
    ]
    return [Path(file) for file in dict.fromkeys(files) if file]


def _protocol(signal: Signal) -> str | None:
    """Return the protocol of a signal's exporter; None if the signal is not sent."""
    if _is_asked_for(signal):
        for variable in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
            if given := os.environ.get(variable, "").strip():
                if given not in {GRPC, HTTP}:
                    raise InvalidTelemetry(f"{variable}={given}: it must be {GRPC} or {HTTP}")
                return given
        return GRPC
    return None


def _is_asked_for(signal: Signal) -> bool:
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    variable = f"OTEL_{signal}_EXPORTER"
    chosen = os.environ.get(variable, "").strip()
    if chosen not in {"", "otlp", "none"}:
        hint = "; --metrics-address serves Prometheus" if chosen == "prometheus" else ""
        raise InvalidTelemetry(f"{variable}={chosen}: it must be otlp or none{hint}")
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return chosen == "otlp" or (not chosen and any(map(os.environ.get, endpoints)))
