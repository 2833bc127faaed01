"""A mesh under load records a bounded number of traces per second, and each of them whole."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, ParentBased

from specmesh.serving.telemetry.exporters import InvalidTelemetry
from specmesh.serving.telemetry.sampler import RateLimited, sampler


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def recorded(sampling: RateLimited, num_traces: int) -> int:
    decisions = [sampling.should_sample(None, number, "answer") for number in range(num_traces)]
    return sum(each.decision is Decision.RECORD_AND_SAMPLE for each in decisions)


def test_a_burst_is_recorded_and_then_one_trace_per_second() -> None:
    clock = Clock()
    sampling = RateLimited(1.0, clock)
    assert recorded(sampling, 50) == 10
    for _ in range(5):
        clock.now += 1.0
        assert recorded(sampling, 50) == 1


def test_a_mesh_with_little_traffic_records_everything() -> None:
    clock = Clock()
    sampling = RateLimited(0.5, clock)
    for _ in range(100):
        assert recorded(sampling, 1) == 1
        clock.now += 2.0


def test_other_calls_do_not_use_up_the_traces_of_answers() -> None:
    sampling = RateLimited(1.0, Clock())
    for number in range(100):
        sampling.should_sample(None, number, "ListModels")
    assert recorded(sampling, 50) == 10


def test_an_hour_of_rest_allows_no_more_than_a_burst() -> None:
    clock = Clock()
    sampling = RateLimited(2.0, clock)
    clock.now = 3600.0
    assert recorded(sampling, 100) == 20


def test_a_trace_has_all_of_its_spans_or_none() -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider(ParentBased(RateLimited(0.1, Clock())))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("test")
    for number in range(3):
        root = tracer.start_span("answer", attributes={"number": number})
        tracer.start_span("round", trace.set_span_in_context(root)).end()
        root.end()
    provider.shutdown()
    assert sorted(each.name for each in kept.get_finished_spans()) == ["answer", "round"]


def test_the_environment_chooses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_TRACES_SAMPLER", raising=False)
    assert sampler() is None
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    assert sampler() is None
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_rate_limited")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "3.5")
    chosen = sampler()
    assert isinstance(chosen, ParentBased)
    assert "RateLimited{3.5}" in chosen.get_description()


@pytest.mark.parametrize("rate", ["", "0", "-1", "inf", "nan", "many"])
def test_a_rate_that_is_none_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, rate: str) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_rate_limited")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", rate)
    with pytest.raises(InvalidTelemetry, match=f"^OTEL_TRACES_SAMPLER_ARG={rate}: it must be"):
        sampler()
