"""Our own histograms beside the SDK's instruments, in all exports."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    MetricExporter,
    MetricExportResult,
)
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from specmesh.serving import histograms as module
from specmesh.serving.histograms import MOST_SERIES, OVERFLOW, Counted, HistogramInstrument
from specmesh.serving.telemetry.exporters import histogram_temporality
from specmesh.serving.telemetry.readers import OwnHistograms, PushReader, ScrapeReader

DELTA, CUMULATIVE = AggregationTemporality.DELTA, AggregationTemporality.CUMULATIVE
BOUNDS = (0.1, 1.0, 10.0)
NUMBERS = (0.0, 0.05, 0.1, 0.100001, 5.0, 10.0, 11.0, 1e9)


@pytest.fixture
def histogram(monkeypatch):
    """The only histogram of the process."""
    made = HistogramInstrument("a.duration", "s", "how long", BOUNDS)
    monkeypatch.setattr(module, "histograms", {made.name: made})
    monkeypatch.setattr("specmesh.serving.telemetry.readers.histograms", {made.name: made})
    return made


class KeptExports(MetricExporter):
    """Keeps what is exported, as OTLP's JSON would have it."""

    def __init__(self):
        super().__init__()
        self.exported = []

    def export(self, metrics_data, timeout_millis=10_000, **kwargs):
        self.exported.append(json.loads(metrics_data.to_json()))
        return MetricExportResult.SUCCESS

    def shutdown(self, timeout_millis=30_000, **kwargs):
        pass

    def force_flush(self, timeout_millis=10_000):
        return True

    def points(self, name):
        """The points of each export under that name."""
        return [
            [
                point
                for scope in export["resource_metrics"][0]["scope_metrics"]
                for metric in scope["metrics"]
                if metric["name"] == name
                for point in metric["data"]["data_points"]
            ]
            for export in self.exported
        ]


@pytest.fixture
def pushing():
    """Start a reader that pushes when it is told to; return it and what it exported."""
    providers = []

    def start(temporality):
        exporter = KeptExports()
        reader = PushReader(exporter, temporality)
        views = [
            View(
                instrument_name="sdk.*",
                aggregation=ExplicitBucketHistogramAggregation(boundaries=BOUNDS),
            )
        ]
        provider = MeterProvider([reader], views=views, shutdown_on_exit=False)
        providers.append(provider)
        return reader, exporter, provider.get_meter("specmesh")

    yield start
    for provider in providers:
        provider.shutdown()


def test_numbers_are_counted_as_the_sdk_counts_them(histogram, pushing):
    reader, exporter, meter = pushing(CUMULATIVE)
    theirs = meter.create_histogram("sdk.duration")
    for number in NUMBERS:
        for recording in (histogram, theirs):
            recording.record(number, {"whole": str(number == int(number))})
    reader.collect()
    (ours,), (others,) = exporter.points("a.duration"), exporter.points("sdk.duration")
    for own, other in zip(ours, others, strict=True):
        assert own["bucket_counts"] == other["bucket_counts"]
        for name in ("attributes", "explicit_bounds", "count", "sum"):
            assert own[name] == other[name], name


@pytest.mark.parametrize(
    ("temporality", "expected"),
    [(CUMULATIVE, [[1, 0, 0, 0], [1, 2, 0, 0]]), (DELTA, [[1, 0, 0, 0], [0, 2, 0, 0]])],
)
def test_a_collector_gets_all_since_the_start_or_since_the_last_export(
    histogram, pushing, temporality, expected
):
    reader, exporter, meter = pushing(temporality)
    meter.create_observable_gauge("always", [lambda _: [Observation(1)]])
    series = histogram.series({"kind": "one"})
    series.record(0.05)
    reader.collect()
    series.record(0.5)
    histogram.record(0.75, {"kind": "one"})
    reader.collect()
    reader.collect()
    *told, last = exporter.points("a.duration")
    assert [point["bucket_counts"] for (point,) in told] == expected
    if temporality is DELTA:
        assert not last
        assert told[1][0]["start_time_unix_nano"] == told[0][0]["time_unix_nano"]
        assert told[1][0]["sum"] == 1.25
    else:
        assert last[0]["bucket_counts"] == expected[1]
        assert told[1][0]["start_time_unix_nano"] == told[0][0]["start_time_unix_nano"]


def test_prometheus_scrapes_them(histogram):
    registry = CollectorRegistry()
    reader = ScrapeReader(registry=registry, scope_info_enabled=False)
    provider = MeterProvider([reader], shutdown_on_exit=False)
    provider.get_meter("specmesh").create_counter("alive").add(1)
    histogram.record(0.5, {"rpc.method": "Verify"})
    histogram.record(20.0, {"rpc.method": "Verify"})
    families = text_string_to_metric_families(generate_latest(registry).decode())
    samples = [sample for family in families for sample in family.samples]
    provider.shutdown()
    found = {
        (sample.name, sample.labels.get("le")): sample.value
        for sample in samples
        if sample.labels.get("rpc_method") == "Verify"
    }
    assert found == {
        ("a_duration_seconds_bucket", "0.1"): 0,
        ("a_duration_seconds_bucket", "1.0"): 1,
        ("a_duration_seconds_bucket", "10.0"): 1,
        ("a_duration_seconds_bucket", "+Inf"): 2,
        ("a_duration_seconds_count", None): 2,
        ("a_duration_seconds_sum", None): 20.5,
    }


def test_otlp_leaves_out_the_extremes(histogram, pushing):
    reader, _, meter = pushing(DELTA)
    meter.create_counter("alive").add(1)
    histogram.record(0.5)
    encoded = []
    reader._exporter.export = lambda data, **_: encoded.append(encode_metrics(data))
    reader.collect()
    (scope,) = encoded[0].resource_metrics[0].scope_metrics
    metrics = {metric.name: metric for metric in scope.metrics}
    assert set(metrics) == {"alive", "a.duration"}
    (point,) = metrics["a.duration"].histogram.data_points
    assert (point.count, point.sum) == (1, 0.5)
    assert not point.HasField("min")
    assert not point.HasField("max")


def test_too_many_sets_of_attributes_share_one(histogram):
    for number in range(MOST_SERIES + 50):
        histogram.record(0.5, {"invented": number})
    assert len(histogram.all_series()) == MOST_SERIES + 1
    assert histogram.series(OVERFLOW).counted() == Counted((0, 50, 0, 0), 25.0)


def test_threads_lose_nothing(histogram):
    def record(number):
        for _ in range(5000):
            histogram.record(0.5, {"number": number % 3})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(record, range(24)))
    assert [series.counted().buckets[1] for series in histogram.all_series()] == [40_000] * 3


@pytest.mark.parametrize(
    ("preference", "expected"),
    [("", CUMULATIVE), ("cumulative", CUMULATIVE), ("delta", DELTA), (" LowMemory ", DELTA)],
)
def test_the_standard_variable_says_what_collectors_get(monkeypatch, preference, expected):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", preference)
    assert histogram_temporality() is expected


def test_scopes_of_others_stay_as_they_are(histogram):
    histogram.record(0.5)
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    for name, version in (("other", "1"), ("other", "2"), ("specmesh", "")):
        provider.get_meter(name, version).create_counter("alive").add(1)
    joined = OwnHistograms(CUMULATIVE).joined(reader.get_metrics_data())
    provider.shutdown()
    (resource,) = joined.resource_metrics
    assert {
        (each.scope.name, each.scope.version): [metric.name for metric in each.metrics]
        for each in resource.scope_metrics
    } == {
        ("other", "1"): ["alive"],
        ("other", "2"): ["alive"],
        ("specmesh", ""): ["alive", "a.duration"],
    }
