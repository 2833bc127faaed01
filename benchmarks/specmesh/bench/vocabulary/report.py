"""The report of the benchmark, as tables in 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from specmesh.bench.vocabulary.context import ContextFigures
from specmesh.bench.vocabulary.engines import HIDDEN_SIZE, EngineFigures
from specmesh.bench.vocabulary.meshes import DRAFTER_MS, LOOKAHEAD, TARGET_MS, MeshComparison
from specmesh.tools.kit.tables import make_table, table_of


@dataclass(frozen=True, slots=True)
class Found:
    """All results; parts that were not asked for are empty."""

    meshes: Sequence[MeshComparison]
    context: Sequence[ContextFigures]
    engines: Sequence[EngineFigures]


def as_json(found: Found) -> dict[str, Any]:
    """Return one JSON object."""
    return {
        "setting": {
            "target_ms": TARGET_MS,
            "drafter_ms": DRAFTER_MS,
            "lookahead": LOOKAHEAD,
            "hidden_size": HIDDEN_SIZE,
        },
        **asdict(found),
    }


def show(found: Found, console: Console) -> None:
    """Print the same as tables."""
    for each in found.meshes:
        console.print(_meshes_table(each))
    for long in found.context:
        console.print(_context_table(long))
    if found.engines:
        console.print(_engines_table(found.engines))


def _meshes_table(found: MeshComparison) -> Table:
    rows = [
        (
            f"{each.entries:,}",
            f"{each.plain_tokens_per_s:.0f}",
            f"{each.tokens_per_s:.0f}",
            f"{each.speedup:.2f}x",
            f"{each.plain_verifier_ms:.2f}",
            f"{each.verifier_ms:.2f}",
        )
        for each in found.meshes
    ]
    ratios = (found.speedup_ratio, found.plain_verifier_ms_ratio, found.verifier_ms_ratio)
    speedup, plain, speculative = (f"{each:.2f}" for each in ratios)
    rows.append(("largest over smallest", "", "", speedup, plain, speculative))
    headings = (
        *("entries", "target alone,\ntokens/s", "speculative", "speed"),
        *("verifier's ms a token,\ntarget alone", "speculative"),
    )
    table = make_table(f"Simulated models, streams: {found.streams}", *headings)
    for row in rows:
        table.add_row(*row)
    return table


def _context_table(found: ContextFigures) -> Table:
    table = make_table(f"A prompt of {found.prompt_tokens:,} tokens", "", "")
    table.add_row("verifier's ms of a verification", f"{found.verifier_ms:.2f}")
    table.add_row("the same behind a short prompt", f"{found.short_verifier_ms:.2f}")
    table.add_row("first token after, ms", f"{found.first_token_ms:.0f}")
    table.add_row("beside the prefill", f"{found.start_ms:.0f}")
    for name, megabytes in found.memory_mb.items():
        table.add_row(f"memory of an answer, {name}, MB", f"{megabytes:.1f}")
    return table


def _engines_table(engines: Sequence[EngineFigures]) -> Table:
    return table_of(
        "A random model, tokens/s",
        engines,
        (
            ("engine", lambda each: each.engine),
            ("streams", lambda each: str(each.streams)),
            ("temperature 0", lambda each: f"{each.greedy_tokens_per_s:.0f}"),
            ("0.8", lambda each: f"{each.sampled_tokens_per_s:.0f}"),
            ("ratio", lambda each: f"{each.ratio:.2f}"),
            ("by processor time", lambda each: f"{each.processor_ratio:.2f}"),
        ),
    )
