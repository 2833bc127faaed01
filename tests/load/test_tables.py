"""What commands print fits into 80 columns, and no number is cut."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console
from tests.load.conftest import observed, seen, workload
from tests.load.reports import mixed_run, point

from specmesh.load.commands.options import ResultOptions
from specmesh.load.commands.session import RunSession
from specmesh.load.generators.fleet import Busy
from specmesh.load.results.objectives import Objectives
from specmesh.load.results.tables import show_points, show_result
from specmesh.load.runs.summary import summarise
from specmesh.load.workload.plan import RunLength


def printed(points, width=80):
    """The lines that ``show_points`` writes."""
    console = Console(file=StringIO(), width=width)
    show_points(console, points)
    return console.file.getvalue().splitlines()


def at(rate, *, ttft_s, e2e_s, num_tokens, **changed):
    """A point at which the server answers in such a time, and the generator has no core left."""
    load = workload(extent=RunLength(duration_s=1.0))
    observations = [
        observed(n / 1000, ttft_s=ttft_s, e2e_s=e2e_s, num_output_tokens=num_tokens)
        for n in range(1000)
    ]
    busy = [Busy(0.0, 0.0), Busy(1.0, 0.99)]
    result = summarise(load, seen(observations, busy), Objectives(e2e_s=100.0))
    return replace(point(rate, **changed), result=result)


def test_the_goodput_of_no_requests_is_a_dash():
    nothing = summarise(workload(), seen([]), Objectives(e2e_s=1.0))
    console = Console(file=StringIO(), width=80)
    show_result(console, nothing)
    assert "goodput      - within e2e 1000 ms" in console.file.getvalue()
    assert cells(printed([replace(point(1.0), result=nothing)]), "1")[-1] == "-"


def test_no_reason_of_a_server_controls_the_terminal_or_fills_it(capsys):
    console = RunSession(ResultOptions()).console
    show_result(console, mixed_run("\x1b[31mRED\x07\u202e\n" + "x" * 500))
    shown = capsys.readouterr().out
    assert "␛[31mRED\ufffd x" in shown
    assert {each for each in shown if not each.isprintable()} == {"\n"}
    assert max(map(len, shown.splitlines())) <= 160


def cells(lines, first):
    """Those of the row that begins with ``first``."""
    return next(line.split() for line in lines if line.split()[:1] == [first])


def test_a_sweep_shows_what_was_offered_beside_what_was_answered():
    found = point(5.0).result.throughput
    shown = cells(printed([point(5.0)]), "5")
    assert shown[1:3] == [f"{found.offered_per_s:.2f}", f"{found.answered_per_s:.2f}"]


@pytest.mark.parametrize("rate", [0.015625, 5.0, 7.0710678, 1234.5, 12345.0])
def test_a_table_of_rates_fits_into_80_columns_with_every_number_whole(rate):
    slow = at(rate, ttft_s=59.5, e2e_s=99.25, num_tokens=9, strategy="speculative")
    quick = at(rate, ttft_s=0.0123, e2e_s=0.5678, num_tokens=80, strategy="speculative")
    lines = printed([quick, slow])
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert sum("answered  tokens/s" in line for line in lines) == 1
    rows = [line.split() for line in lines if line.split()[-1:] == ["100.0%"]]
    assert [row[0] for row in rows] == [f"{rate:.4g}*" if rate < 1000 else f"{rate:.0f}*"] * 2
    assert [len(row) for row in rows] == [10, 10]
    latency = slow.result.latency
    assert rows[1][4:9] == [
        f"{each:.0f}"
        for each in (
            *(latency.ttft_ms.p50, latency.ttft_ms.p99, latency.tpot_ms.p50),
            *(latency.e2e_ms.p50, latency.e2e_ms.p99),
        )
    ]


NAME = "[/INST] bad"


def test_names_of_servers_and_users_are_shown_as_they_are():
    made = mixed_run(NAME)
    result = replace(
        made,
        variations=[replace(each, name=NAME) for each in made.variations],
        servers=[replace(each, role=NAME, address="[bold]") for each in made.servers],
    )
    console = Console(file=StringIO(), width=200)
    show_result(console, result)
    shown = " ".join(console.file.getvalue().split())
    for part in (f"5 {NAME}", f"{NAME}: ", f"{NAME} [bold]", f"ms {NAME} specmesh trace show"):
        assert part in shown
    swept = replace(point(5.0, stop=NAME), saturated=f"9% failed, most with {NAME}")
    lines = printed([swept])
    assert f"stop={NAME}" in lines
    assert f"at 5/s 9% failed, most with {NAME}" in lines
