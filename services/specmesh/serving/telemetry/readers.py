"""Readers of the OpenTelemetry SDK that add our own histograms to what they export.

The SDK gives a reader nothing as long as none of its own instruments has a value. A server always
has one: the number of its active calls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    PeriodicExportingMetricReader,
    ScopeMetrics,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from specmesh.serving.histograms import BEGAN_NS, Counted, HistogramInstrument, Series, histograms

_SCOPE = InstrumentationScope("specmesh")


class OwnHistograms:
    """The histograms of this process as one reader exports them: all that was counted, or, with
    ``DELTA``, what was counted since the reader's last export."""

    def __init__(self, temporality: AggregationTemporality) -> None:
        self._temporality = temporality
        self._began_ns = BEGAN_NS
        self._lock = threading.Lock()
        self._before: dict[Series, Counted] = {}

    def joined(self, data: MetricsData) -> MetricsData:
        """Return ``data`` with the histograms that have counted anything."""
        first, *others = data.resource_metrics
        scopes, own = list(first.scope_metrics), self._metrics()
        for at, each in enumerate(scopes):
            if each.scope.name == _SCOPE.name:
                scopes[at] = replace(each, metrics=[*each.metrics, *own])
                break
        else:
            scopes.append(ScopeMetrics(_SCOPE, own, ""))
        return MetricsData([replace(first, scope_metrics=scopes), *others])

    def _metrics(self) -> Sequence[Metric]:
        with self._lock:  # A flush may come beside the reader's own turn.
            now_ns = time.time_ns()
            exported = [self._exported(each, now_ns) for each in tuple(histograms.values())]
            if self._temporality is AggregationTemporality.DELTA:
                self._began_ns = now_ns
            return [metric for metric in exported if metric is not None]

    def _exported(self, histogram: HistogramInstrument, now_ns: int) -> Metric | None:
        points = [
            self._point(series, counted, histogram.bounds, now_ns)
            for series in histogram.all_series()
            if any((counted := self._counted(series)).buckets)
        ]
        if not points:
            return None
        data = Histogram(points, self._temporality)
        return Metric(histogram.name, histogram.description, histogram.unit, data)

    def _counted(self, series: Series) -> Counted:
        counted = series.counted()
        if self._temporality is AggregationTemporality.CUMULATIVE:
            return counted
        before, self._before[series] = self._before.get(series), counted
        return counted.since(before)

    def _point(
        self, series: Series, counted: Counted, bounds: Sequence[float], now_ns: int
    ) -> HistogramDataPoint:
        # Neither is known since the last export; the protocol lets them be left out.
        unknown: Any = None
        return HistogramDataPoint(
            attributes=series.attributes,
            start_time_unix_nano=self._began_ns,
            time_unix_nano=now_ns,
            count=sum(counted.buckets),
            sum=counted.total,
            bucket_counts=counted.buckets,
            explicit_bounds=bounds,
            min=unknown,
            max=unknown,
        )


class ScrapeReader(PrometheusMetricReader):
    """The reader of a port that Prometheus scrapes."""

    _own: OwnHistograms | None = None

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        if self._own is None:
            self._own = OwnHistograms(AggregationTemporality.CUMULATIVE)
        super()._receive_metrics(self._own.joined(metrics_data), timeout_millis, **kwargs)


class PushReader(PeriodicExportingMetricReader):
    """The reader that sends metrics to a collector, histograms by ``temporality``."""

    def __init__(self, exporter: MetricExporter, temporality: AggregationTemporality) -> None:
        self._own = OwnHistograms(temporality)
        super().__init__(exporter)

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        super()._receive_metrics(self._own.joined(metrics_data), timeout_millis, **kwargs)
