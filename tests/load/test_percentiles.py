"""There is one definition of percentiles, HdrHistogram's, wherever specmesh load has some."""

from random import Random

import pytest
from rich.console import Console
from tests.load.conftest import observed
from tests.load.reports import run_report

from specmesh.load.generators.messages import WorkerProgress
from specmesh.load.html.contents import page
from specmesh.load.results.distributions import ms
from specmesh.load.results.histograms import Histogram, nearest_rank, percentile_of
from specmesh.load.results.timeline import timeline
from specmesh.load.runs.live import LiveView
from specmesh.load.workload.plan import RunLength

COUNTS = [1, 2, 3, 4, 10, 49, 50, 99, 100, 101, 997]
PERCENTS = [0.0, 1.0, 50.0, 90.0, 95.0, 99.0, 99.9, 100.0]


def values(count):
    """Multiples of a millisecond, each another."""
    found = [n / 1000 for n in range(1, count + 1)]
    Random(count).shuffle(found)
    return found


@pytest.mark.parametrize("count", COUNTS)
def test_values_and_histograms_have_the_same_percentiles(count):
    histogram = Histogram.of(values(count))
    for percent in PERCENTS:
        exact = percentile_of(values(count), percent)
        assert exact == nearest_rank(percent, count) / 1000
        assert histogram.percentile(percent) == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize("count", COUNTS)
def test_a_second_of_the_timeline_has_them_too(count):
    seen = [observed(0.5, ttft_s=each, e2e_s=2 * each) for each in values(count)]
    first = timeline(seen)[0]
    assert first.ttft_p50_ms == ms(nearest_rank(50, count) / 1000)
    assert first.ttft_p99_ms == ms(nearest_rank(99, count) / 1000)
    assert first.e2e_p50_ms == ms(2 * nearest_rank(50, count) / 1000)


def test_so_has_what_a_terminal_shows_meanwhile():
    view = LiveView(Console(), "gRPC a:1", RunLength(duration_s=30.0))
    view.heard(0, WorkerProgress(6.0, 0.1, num_ended=2, num_under_way=0, ttfts_s=[0.3, 0.1]))
    assert "TTFT p50 100 ms" in view.__rich__().plain


def test_so_have_tokens_per_chunk():
    report = run_report()
    report["result"]["tokens_per_chunk"] = {str(size): 1 for size in range(1, 13)}
    (run,) = page([("", report)])["runs"]
    row = next(each for each in run["percentiles"] if each["metric"] == "tokens_per_chunk")
    for name, percent in (("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99), ("p99_9", 99.9)):
        assert row[name] == nearest_rank(percent, 12)
