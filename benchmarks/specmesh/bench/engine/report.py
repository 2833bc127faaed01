"""The report of the benchmark, as text in 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from specmesh.bench.engine.figures import Figures
from specmesh.bench.engine.plan import PROMPT_TOKENS, WIDTH_PREFIX_TOKENS, EnginePlan
from specmesh.bench.engine.run import EngineRuns
from specmesh.tools.kit.tables import make_table, table_of


def as_json(plan: EnginePlan, measured: EngineRuns) -> dict[str, Any]:
    """Return one JSON object; times are in ms."""
    one = measured.streams[1].tokens_per_s
    return {
        "setting": {
            **asdict(plan),
            "prompt_tokens": PROMPT_TOKENS,
            "answers": {str(n): plan.num_answers(n) for n in plan.streams},
        },
        "streams": _by_name(measured.streams),
        "baseline": _by_name(measured.baseline),
        "speedup_over_one_stream": {
            str(n): figures.tokens_per_s / one for n, figures in measured.streams.items()
        },
        "over_baseline": {str(n): ratio for n, ratio in measured.over_baseline.items()},
        "width_ms": {str(width): ms for width, ms in measured.width_ms.items()},
        "peak_memory_mb": dict(measured.peak_memory_mb),
        "identical": measured.identical,
        "flips": {
            name: {
                "answers": comparison.num_answers,
                "differ": len(comparison.flips),
                "nats": measured.margins_nats[name],
            }
            for name, comparison in measured.comparisons.items()
        },
        "shared_prefix": asdict(measured.shared_prefix),
    }


def show(plan: EnginePlan, measured: EngineRuns, console: Console) -> None:
    """Print the same as tables."""
    console.print(
        f"{Path(plan.model).name}, {plan.dtype} on {plan.device}, threads: {plan.threads}; "
        f"prompts of {PROMPT_TOKENS[0]} to {PROMPT_TOKENS[1]} tokens, "
        f"answers of {plan.num_tokens}",
        highlight=False,
    )
    for title, runs in (
        ("transformers' generate, padded batches", measured.baseline),
        ("specmesh, concurrent streams", measured.streams),
    ):
        console.print(_figures_table(title, runs, measured.over_baseline))
    console.print(_width_table(measured.width_ms))
    console.print(_agreement_table(measured))
    shared = measured.shared_prefix
    peaks = measured.peak_memory_mb
    console.print(
        f"\n{shared.sessions} sessions with one system prompt of {shared.common_tokens} tokens: "
        f"{shared.hit_rate:.0%} of it found cached;\n"
        f"first token after {shared.first_ttft_ms:.0f} ms for the first session, "
        f"{shared.others_ttft_p50_ms:.0f} ms for the others\n"
        f"Peak memory: {peaks['ours']:.0f} MB, generate {peaks['baseline']:.0f} MB",
        highlight=False,
    )


def _figures_table(
    title: str, runs: Mapping[int, Figures], over_baseline: Mapping[int, float]
) -> Table:
    ours = title.startswith("specmesh")
    columns: list[tuple[str, Callable[[tuple[int, Figures]], str]]] = [
        ("streams", lambda run: str(run[0])),
        ("tokens/s", lambda run: f"{run[1].tokens_per_s:.1f}"),
        ("of one", lambda run: f"{run[1].tokens_per_s / runs[1].tokens_per_s:.2f}x"),
        ("TTFT p50", lambda run: f"{run[1].ttft_p50_ms:.0f} ms"),
        ("p99", lambda run: f"{run[1].ttft_p99_ms:.0f} ms"),
        ("ITL p50", lambda run: f"{run[1].itl_p50_ms:.1f} ms"),
        ("p99", lambda run: f"{run[1].itl_p99_ms:.1f} ms"),
    ]
    if ours:
        columns.append(("of generate", lambda run: f"[bold]{over_baseline[run[0]]:.2f}x"))
    return table_of(title, runs.items(), columns)


def _width_table(width_ms: Mapping[int, float]) -> Table:
    narrow = next(iter(width_ms.values()))
    title = f"A verification by width, below {WIDTH_PREFIX_TOKENS} tokens"
    table = make_table(title, "tokens", *map(str, width_ms))
    table.add_row("ms", *(f"{ms:.1f}" for ms in width_ms.values()))
    table.add_row("of one", *(f"{ms / narrow:.2f}x" for ms in width_ms.values()))
    return table


def _agreement_table(measured: EngineRuns) -> Table:
    return table_of(
        "Same tokens at temperature 0",
        measured.comparisons.items(),
        (
            ("compared", lambda each: each[0]),
            ("answers", lambda each: str(each[1].num_answers)),
            (
                "differ",
                lambda each: f"[{'bold yellow' if each[1].flips else 'green'}]{len(each[1].flips)}",
            ),
            ("margins of the ties, in nats", lambda each: _span(measured.margins_nats[each[0]])),
        ),
    )


def _span(margins: Iterable[float]) -> str:
    ordered = sorted(margins)
    return f"{ordered[0]:.2g} to {ordered[-1]:.2g}" if ordered else ""


def _by_name(runs: Mapping[int, Figures]) -> dict[str, dict[str, float]]:
    return {str(streams): asdict(figures) for streams, figures in runs.items()}
