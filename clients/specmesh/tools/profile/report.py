"""The tables of a profile, and of the choice that follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from specmesh.simulation.costs import MANY, MeshCosts
from specmesh.simulation.law import ForwardShape
from specmesh.tools.kit.tables import make_table, table_of
from specmesh.tools.profile.choose import Expectation
from specmesh.tools.profile.file import Profile

_SIZES = ((1, 1), (1, 4), (1, 8), (1, 16), (8, 1), (8, 4))
"""Pairs of calls, and tokens of each call."""


def show(profile: Profile, console: Console) -> None:
    """Print the measurements."""
    console.print(_forwards(profile))
    if profile.costs.orchestrating:
        console.print(_rounds(profile.costs))
    costs = profile.costs
    lines = [f"The hop of a verification takes {costs.verify_hop.ms(0):.1f} ms"]
    if costs.drafters:
        lines[1:1] = [
            f"the hop of a draft {costs.draft_hop.ms(0):.1f} ms",
            f"while both roles work, the target takes {costs.contention.target:.2f} times as long, "
            f"the drafter {costs.contention.drafter:.2f} times",
        ]
    console.print("; ".join(lines) + f".\nMeasured in {profile.seconds:.0f} s.", highlight=False)


def _forwards(profile: Profile) -> Table:
    costs = profile.costs
    sizes = [f"{calls} x {tokens}" if calls > 1 else f"{tokens}" for calls, tokens in _SIZES]
    table = make_table(
        "Forwards in ms, by tokens (and calls) at a context of 256", "", *sizes, "error"
    )
    laws = [("target", costs.target), *(("drafter", law) for law in costs.drafters)]
    laws += [] if costs.heads is None else [("heads", costs.heads)]
    for role, law in laws:
        accuracy = profile.accuracy[role]
        error = "-" if accuracy.median is None else f"{accuracy.median:.1%}"
        times = [law.ms(ForwardShape(calls, calls * tokens, 256)) for calls, tokens in _SIZES]
        table.add_row(role, *(f"{ms:.1f}" for ms in times), error)
    table.caption = "error: median relative error on held-out settings"
    return table


def _rounds(costs: MeshCosts) -> Table:
    return table_of(
        "Other time per round, in ms",
        costs.orchestrating,
        (
            ("strategy", lambda each: each.strategy),
            ("1 stream", lambda each: f"{each.one_ms:.1f}"),
            (f"{MANY} streams, in turn", lambda each: f"{each.many_ms:.1f}"),
        ),
    )


def explanation(expected: Sequence[Expectation], streams: int, temperature: float) -> Table:
    """Return a table of all candidates, the best first."""
    return table_of(
        f"{streams} {'stream' if streams == 1 else 'streams'}, temperature {temperature:g}",
        expected,
        (
            ("strategy and options", lambda each: each.acceptance.way.text),
            ("drafted", lambda each: f"{each.acceptance.nodes:.1f}"),
            ("levels", lambda each: str(len(each.acceptance.levels))),
            ("tokens/round", lambda each: f"{each.acceptance.tokens:.2f}"),
            ("rounds/s", lambda each: f"{each.rounds_per_s:.1f}"),
            ("tokens/s", lambda each: f"{each.tokens_per_s:.1f}"),
            ("speed-up", lambda each: f"{each.ratio:.2f}x"),
            ("tried", lambda each: "yes" if each.observed else ""),
        ),
    )


def as_json(expected: Sequence[Expectation]) -> list[dict[str, Any]]:
    """Return the candidates as JSON objects."""
    return [
        {
            "strategy": each.acceptance.way.strategy,
            "lookahead": each.acceptance.way.lookahead,
            "width": each.acceptance.way.width,
            "nodes": each.acceptance.nodes,
            "levels": len(each.acceptance.levels),
            "tokens_per_call": each.acceptance.tokens,
            "rounds_per_s": each.rounds_per_s,
            "tokens_per_s": each.tokens_per_s,
            "ratio": each.ratio,
            "observed": each.observed,
        }
        for each in expected
    ]
