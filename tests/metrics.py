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

_DELTA = dict.fromkeys((Counter, Histogram), AggregationTemporality.DELTA)
_readers: list[InMemoryMetricReader] = []


class Recorded:
    """The metrics of this process since the test began."""

    def __init__(self, reader: InMemoryMetricReader) -> None:
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
        _readers.append(InMemoryMetricReader(preferred_temporality=_DELTA))
        metrics.set_meter_provider(MeterProvider(_readers, shutdown_on_exit=False))
    return Recorded(_readers[0])
