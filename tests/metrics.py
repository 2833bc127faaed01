"""What the code under test tells the OpenTelemetry SDK."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    DataPointT,
    InMemoryMetricReader,
    Metric,
)

from specmesh.serving.telemetry.readers import OwnHistograms

_DELTA = dict.fromkeys((Counter, Histogram), AggregationTemporality.DELTA)


class MemoryReader(InMemoryMetricReader):
    """The SDK's reader for tests, with our own histograms."""

    def __init__(self) -> None:
        super().__init__(preferred_temporality=_DELTA)
        self._own = OwnHistograms(AggregationTemporality.DELTA)

    def _receive_metrics(self, metrics_data, timeout_millis=10_000, **kwargs):
        super()._receive_metrics(self._own.joined(metrics_data), timeout_millis, **kwargs)


_readers: list[MemoryReader] = []


class Recorded:
    """The metrics of this process since the test began."""

    def __init__(self, reader: MemoryReader) -> None:
        self.reader = reader
        self._metrics: dict[str, list[Metric]] = defaultdict(list)
        reader.get_metrics_data()  # what came before is no affair of ours

    def metric(self, name: str) -> Metric:
        """The metric of that name."""
        self._collect()
        return self._metrics[name][0]

    def points(self, name: str) -> list[DataPointT]:
        """What was recorded under that name; one point for equal attributes, unless ``wait_for``
        came in between."""
        self._collect()
        return [point for metric in self._metrics[name] for point in metric.data.data_points]

    def total(self, name: str) -> float:
        """The sum of a counter."""
        return sum(point.value for point in self.points(name))

    async def wait_for(self, name: str) -> None:
        """Return once something is recorded under that name."""
        async with asyncio.timeout(10):
            while not self.points(name):  # noqa: ASYNC110 - the SDK tells nobody
                await asyncio.sleep(0.001)

    def _collect(self) -> None:
        data = self.reader.get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    self._metrics[metric.name].append(metric)


@pytest.fixture
def recorded() -> Recorded:
    """A process has one meter provider, so the first test that asks for it sets it for all."""
    if not _readers:
        _readers.append(MemoryReader())
        metrics.set_meter_provider(MeterProvider(_readers, shutdown_on_exit=False))
        # The SDK gives a reader nothing where no instrument of its own has anything to tell.
        always = [lambda _: [metrics.Observation(1)]]
        metrics.get_meter("tests").create_observable_gauge("tests.always", always)
    return Recorded(_readers[0])
