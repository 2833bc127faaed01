"""How the benchmark looks, in 80 columns and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from specmesh.cli.filter.sessions import SessionFigures
from specmesh.cli.filter.summary import SHARE, Margin, Point, Summary
from specmesh.cli.strategies.report import make_table


def as_json(summary: Summary, sessions: SessionFigures | None) -> dict[str, Any]:
    """One object for machines. An infinite threshold is the string "inf" or "-inf"."""
    return {
        "points": [
            {**asdict(point), "threshold": _json_number(point.threshold)}
            for point in summary.points
        ],
        "target_tokens_per_s": summary.target_tokens_per_s,
        "end_points_exact": summary.end_points_exact,
        "margins": {
            "kept_share": SHARE,
            **{each.scorer: _margin_json(each) for each in summary.margins},
        },
        "sessions": None if sessions is None else asdict(sessions),
    }


def show(summary: Summary, sessions: SessionFigures | None, console: Console) -> None:
    """The same for people."""
    console.print(_table(summary.points))
    console.print(
        f"\nThe target alone: {summary.target_tokens_per_s:.1f} tokens/s. End points are "
        f"{'exactly' if summary.end_points_exact else 'NOT'} the drafter's and the target's "
        "own texts.",
        highlight=False,
        soft_wrap=True,
    )
    for each in summary.margins:
        console.print(
            f"At {SHARE:.0%} kept, {each.scorer} makes {each.agreement:.0%} of the way from the "
            f"drafter's agreement to the target's, {each.target_loglik:.0%} by log-likelihood.",
            highlight=False,
            soft_wrap=True,
        )
    if sessions is not None:
        console.print(_describe_sessions(sessions), highlight=False, soft_wrap=True)


def _table(points: Sequence[Point]) -> Table:
    table = make_table("What is kept, how fast, how good")
    table.add_column("scorer", no_wrap=True)
    for heading in ("above", "kept", "tokens/s", "agreement", "log p", "same text"):
        table.add_column(heading, justify="right")
    for point in points:
        table.add_row(
            point.scorer,
            f"{point.threshold:.3f}",
            f"{point.kept_share:.1%}",
            f"{point.tokens_per_s:.1f}",
            f"{point.agreement:.1%}",
            f"{point.target_loglik:.3f}",
            f"{point.text_agreement:.1%}",
        )
    return table


def _describe_sessions(sessions: SessionFigures) -> str:
    return (
        f"{sessions.count} sessions at once, {sessions.kept_share:.0%} kept: "
        f"{sessions.throughput_filter:.0f} tokens/s, the target alone "
        f"{sessions.throughput_target:.0f}, {sessions.factor:.2f}x;\n"
        f"batches of {sessions.mean_batch_size:.1f} requests from the request cache"
    )


def _margin_json(margin: Margin) -> dict[str, float]:
    return {"agreement": margin.agreement, "target_loglik": margin.target_loglik}


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
