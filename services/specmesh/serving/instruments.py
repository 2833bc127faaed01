"""Kinds of metrics, and what records them: instruments of OpenTelemetry, and our own histograms.

Nothing is exported unless the process has called ``telemetry.pipeline.configure``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opentelemetry import metrics
from opentelemetry.metrics import Counter, Observation
from opentelemetry.metrics import _Gauge as Gauge

from specmesh.serving.histograms import HistogramInstrument, histograms

Read = Callable[[], Iterable[Observation]]
"""A callback of each export or scrape, on its thread: it must neither block nor change anything."""

_meter = metrics.get_meter("specmesh")


@dataclass(frozen=True, slots=True)
class Metric:
    """The name of a metric, its unit (UCUM) and its description."""

    name: str
    unit: str
    description: str


class Tally:
    """A sum that is read at each scrape: adding to it costs a hundredth of what an instrument takes
    for a measurement."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, number: int) -> None:
        """Add ``number``."""
        self.total += number


@dataclass(frozen=True, slots=True)
class CounterMetric(Metric):
    """A number that only grows."""

    def instrument(self) -> Counter:
        """Return an instrument to add to."""
        return _meter.create_counter(self.name, self.unit, self.description)

    def tally(self) -> Tally:
        """Return a tally to add to, instead of an instrument."""
        tally = Tally()
        self.observe(lambda: [Observation(tally.total)])
        return tally

    def observe(self, read: Read) -> None:
        """Report what ``read`` returns, instead of recording with ``instrument``."""
        _meter.create_observable_counter(self.name, [lambda _: read()], self.unit, self.description)


@dataclass(frozen=True, slots=True)
class GaugeMetric(Metric):
    """A number that rises and falls."""

    def instrument(self) -> Gauge:
        """Return an instrument to set."""
        return _meter.create_gauge(self.name, self.unit, self.description)

    def observe(self, read: Read) -> None:
        """Report what ``read`` returns, instead of recording with ``instrument``."""
        _meter.create_observable_gauge(self.name, [lambda _: read()], self.unit, self.description)


@dataclass(frozen=True, slots=True)
class HistogramMetric(Metric):
    """A histogram; ``buckets`` are the upper bounds of all buckets but the last."""

    buckets: tuple[float, ...]

    def instrument(self) -> HistogramInstrument:
        """Return the process's histogram of this kind to record with."""
        made = HistogramInstrument(self.name, self.unit, self.description, self.buckets)
        return histograms.setdefault(self.name, made)
