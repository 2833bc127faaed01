"""The report of the benchmark, as text in 80 columns and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from specmesh.bench.filter.sessions import CrowdPoint, SessionFigures
from specmesh.bench.filter.summary import SHARE, Margin, Summary, SweepPoint
from specmesh.tools.kit.tables import make_table, table_of


def as_json(summary: Summary, sessions: SessionFigures | None) -> dict[str, Any]:
    """Return one JSON object. An infinite threshold is the string "inf" or "-inf"."""
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
    """Print the same as tables."""
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
        console.print(_sessions_table(sessions))


def _table(points: Sequence[SweepPoint]) -> Table:
    return table_of(
        "Kept share, speed and quality",
        points,
        (
            ("scorer", lambda point: point.scorer),
            ("above", lambda point: f"{point.threshold:.3f}"),
            ("kept", lambda point: f"{point.kept_share:.1%}"),
            ("tokens/s", lambda point: f"{point.tokens_per_s:.1f}"),
            ("agreement", lambda point: f"{point.agreement:.1%}"),
            ("log p", lambda point: f"{point.target_loglik:.3f}"),
            ("same text", lambda point: f"{point.text_agreement:.1%}"),
        ),
    )


def _sessions_table(sessions: SessionFigures) -> Table:
    title = f"{sessions.count} concurrent sessions, scorer {sessions.points[0].scorer}"
    cores = ("cores: target", "drafter", "rest")
    table = make_table(title, "above", "kept", "tokens/s", "factor", "batch", *cores)
    alone = f"{sessions.target_tokens_per_s:.0f}"
    table.add_row("(target alone)", "", alone, "1.00", "", *_cores(sessions.target_cpu_ms))
    for point in sessions.points:
        table.add_row(*_cells(point), *_cores(point.cpu_ms))
    return table


def _cells(point: CrowdPoint) -> tuple[str, ...]:
    return (
        f"{point.threshold:.3f}",
        f"{point.kept_share:.1%}",
        f"{point.tokens_per_s:.0f}",
        f"{point.factor:.2f}",
        f"{point.mean_batch_size:.1f}",
    )


def _cores(cpu_ms: Mapping[str, float]) -> tuple[str, ...]:
    """Return milliseconds of a core per token, for verifiers, drafters and all other processes."""
    target, drafter = (
        sum(each for name, each in cpu_ms.items() if name.startswith(role))
        for role in ("verifier", "drafter")
    )
    return tuple(
        f"{each:.2f} ms" for each in (target, drafter, sum(cpu_ms.values()) - target - drafter)
    )


def _margin_json(margin: Margin) -> dict[str, float]:
    return {"agreement": margin.agreement, "target_loglik": margin.target_loglik}


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
