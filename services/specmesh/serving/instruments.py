"""Kinds of metrics: what one is called and means, and the OpenTelemetry instrument that records it.

Without a MeterProvider in the process an instrument does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opentelemetry import metrics
from opentelemetry.metrics import Counter, Histogram, Observation
from opentelemetry.metrics import _Gauge as Gauge

Read = Callable[[], Iterable[Observation]]
"""Called by each export or scrape, on its thread: must neither block nor change anything."""

_meter = metrics.get_meter("specmesh")


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric is called, its unit (UCUM) and what it means."""

    name: str
    unit: str
    description: str


@dataclass(frozen=True, slots=True)
class CounterMetric(Metric):
    """A number that only grows."""

    def instrument(self) -> Counter:
        """To add to."""
        return _meter.create_counter(self.name, self.unit, self.description)

    def observe(self, read: Read) -> None:
        """Report what ``read`` returns, instead."""
        _meter.create_observable_counter(self.name, [lambda _: read()], self.unit, self.description)


@dataclass(frozen=True, slots=True)
class GaugeMetric(Metric):
    """A number that comes and goes."""

    def instrument(self) -> Gauge:
        """To set."""
        return _meter.create_gauge(self.name, self.unit, self.description)

    def observe(self, read: Read) -> None:
        """Report what ``read`` returns, instead."""
        _meter.create_observable_gauge(self.name, [lambda _: read()], self.unit, self.description)


@dataclass(frozen=True, slots=True)
class HistogramMetric(Metric):
    """Numbers of which quantiles are wanted; ``buckets`` are the upper bounds of all but the
    last."""

    buckets: tuple[float, ...]

    def instrument(self) -> Histogram:
        """To record with."""
        return _meter.create_histogram(
            self.name,
            self.unit,
            self.description,
            explicit_bucket_boundaries_advisory=self.buckets,
        )
