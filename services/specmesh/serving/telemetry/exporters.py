"""OpenTelemetry exporters, as the standard variables of the environment ask for them.

Unlike the OpenTelemetry SDK by itself, nothing is sent without an endpoint or an exporter that was
asked for: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter

Signal = Literal["TRACES", "METRICS"]

_GRPC = "grpc"
_HTTP = "http/protobuf"


class UnsupportedExporter(ValueError):
    """A variable asks for what there is not; the message names it."""


def check_environment() -> None:
    """Raise `UnsupportedExporter` if the environment asks for what there is not."""
    _protocol("TRACES")
    _protocol("METRICS")


def span_exporter() -> SpanExporter | None:
    """Make what sends spans; None if none are to be sent. Raises `UnsupportedExporter`."""
    match _protocol("TRACES"):
        case None:
            return None
        case "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter()
        case _:
            from opentelemetry.exporter.otlp.proto.http import trace_exporter as over_http

            return over_http.OTLPSpanExporter()


def metric_exporter() -> MetricExporter | None:
    """Make what sends metrics; None if none are to be sent. Raises `UnsupportedExporter`."""
    match _protocol("METRICS"):
        case None:
            return None
        case "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

            return OTLPMetricExporter()
        case _:
            from opentelemetry.exporter.otlp.proto.http import metric_exporter as over_http

            return over_http.OTLPMetricExporter()


def certificate_files() -> Sequence[Path]:
    """List the files of certificates with which collectors are called: ours, and the CAs believed.

    Raises `UnsupportedExporter`.
    """
    given = os.environ.get
    signals: Sequence[Signal] = ("TRACES", "METRICS")
    files = [
        given(f"OTEL_EXPORTER_OTLP_{signal}_{kind}") or given(f"OTEL_EXPORTER_OTLP_{kind}")
        for signal in signals
        if _is_asked_for(signal)
        for kind in ("CERTIFICATE", "CLIENT_CERTIFICATE")
    ]
    return [Path(file) for file in dict.fromkeys(files) if file]


def _protocol(signal: Signal) -> str | None:
    """Tell by which protocol a signal is sent, if it is."""
    if _is_asked_for(signal):
        for variable in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
            if given := os.environ.get(variable, "").strip():
                if given not in {_GRPC, _HTTP}:
                    raise UnsupportedExporter(f"{variable}={given}: it can be {_GRPC} or {_HTTP}")
                return given
        return _GRPC
    return None


def _is_asked_for(signal: Signal) -> bool:
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    variable = f"OTEL_{signal}_EXPORTER"
    chosen = os.environ.get(variable, "").strip()
    if chosen not in {"", "otlp", "none"}:
        hint = "; --metrics-address serves Prometheus" if chosen == "prometheus" else ""
        raise UnsupportedExporter(f"{variable}={chosen}: it can be otlp or none{hint}")
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return chosen == "otlp" or (not chosen and any(map(os.environ.get, endpoints)))
