"""The options of ``specmesh simulate``; their errors name the option."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.simulation.costs import MeshCosts
from specmesh.simulation.law import ForwardShape, Law

MIN_STEP = 0.01
MAX_TOKEN_ID = (1 << 32) - 1
MAX_SEED = (1 << 63) - 1
MAX_TOKENS = 100_000
_LEAST_RATE, _MOST_RATE = 1e-6, 1e6
CORES = os.cpu_count() or 1


def finite(value: float | None) -> float | None:
    """Refuse infinity, and NaN, which passes every bound."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("must be a finite number")
    return value


def positive(value: float | None) -> float | None:
    """Refuse what is not finite and above 0."""
    if finite(value) is not None and value is not None and value <= 0:
        raise typer.BadParameter("must be above 0")
    return value


def request_rate(value: float | None) -> float | None:
    """Refuse rates at which the times of arrival would swallow, or be, the times of answers."""
    if value is not None and not _LEAST_RATE <= value <= _MOST_RATE:
        raise typer.BadParameter(f"must be between {_LEAST_RATE:g} and {_MOST_RATE:g}")
    return value


def grid_step(value: float) -> float:
    """Refuse steps that don't divide 1, because both ends must be on the grid."""
    if not MIN_STEP <= value <= 1 / 2 or not math.isclose(round(1 / value) * value, 1):
        raise typer.BadParameter(f"must divide 1 and be in [{MIN_STEP}, 0.5]")
    return value


def output_folder(value: Path | None) -> Path | None:
    """Create the folder."""
    if value is not None:
        try:
            value.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise typer.BadParameter(f"can't make {value}: {error.strerror}") from error
    return value


def strategy_names(values: Sequence[str] | None) -> Sequence[str] | None:
    """Refuse names that aren't in the registry."""
    for value in values or ():
        if value not in STRATEGIES:
            raise typer.BadParameter(f"{value!r} is not one of: {', '.join(STRATEGIES)}")
    return values


def require_drafting(names: Sequence[str], costs: MeshCosts) -> None:
    """Raise BadParameter if one of the strategies needs heads or a drafter, and there is none."""
    for name in names:
        lacks_heads = STRATEGIES[name].needs_heads and costs.heads is None
        if lacks_heads or (STRATEGIES[name].needs_drafter and not costs.drafters):
            hint = "--heads-ms" if lacks_heads else "--drafter-ms"
            raise typer.BadParameter(f"strategy {name} requires it", param_hint=hint)


def token_ids(text: str) -> tuple[int, ...]:
    """Parse ``--prompt-tokens``; an empty text is an empty prompt."""
    hint = "--prompt-tokens"
    try:
        ids = tuple(int(each) for each in text.split(",")) if text.strip() else ()
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} must be like 1,2,3", param_hint=hint) from error
    if not all(0 <= each <= MAX_TOKEN_ID for each in ids):
        raise typer.BadParameter(f"token ids must be in [0, {MAX_TOKEN_ID}]", param_hint=hint)
    return ids


def accepted_counts(text: str) -> list[int]:
    """Parse ``COUNTS``, at least two numbers that are not all 0."""
    try:
        counts = [int(each) for each in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} must be like 60,20,12", param_hint="COUNTS") from error
    if len(counts) < 2 or min(counts) < 0 or not any(counts):  # noqa: PLR2004 - 0 and 1 accepted
        raise typer.BadParameter(
            "must hold two or more numbers, none negative and not all 0", param_hint="COUNTS"
        )
    return counts


def law(model: str, each_ms: float | None, histogram: Path | None, token_ms: float = 0.0) -> Law:
    """Return the law from ``--MODEL-ms`` or ``--MODEL-histogram``, exactly one of which must be
    given."""
    fixed, drawn = f"--{model}-ms", f"--{model}-histogram"
    if (each_ms is None) == (histogram is None):
        raise typer.BadParameter("give exactly one of them", param_hint=f"{fixed} / {drawn}")
    if histogram is not None:
        if token_ms:
            raise typer.BadParameter(f"it requires {fixed}", param_hint=f"--{model}-token-ms")
        return _measured(histogram, drawn)
    assert each_ms is not None
    if each_ms <= 0:
        raise typer.BadParameter("must be above 0", param_hint=fixed)
    return Law.fixed(each_ms, token_ms)


def _measured(path: Path, hint: str) -> Law:
    try:
        read = json.loads(path.read_text())
        measured = Law.drawn(_counts_by_ms(read))
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}", param_hint=hint) from error
    except RecursionError as error:
        raise typer.BadParameter(f"{path}: is nested too deeply", param_hint=hint) from error
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint=hint) from error
    if measured.ms(ForwardShape()) <= 0:
        raise typer.BadParameter(f"{path}: the median must be above 0", param_hint=hint)
    return measured


def _counts_by_ms(read: object) -> Mapping[float, float]:
    if not isinstance(read, dict):
        raise ValueError('must hold an object like {"0.021": 118}')
    counts = {}
    for seconds, number in read.items():
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(f"the count of {seconds!r} must be a number")
        counts[1e3 * float(seconds)] = float(number)
    if not all(map(math.isfinite, (*counts, *counts.values()))):
        raise ValueError("latencies and counts must be finite")
    return counts


Out = Annotated[
    Path | None, typer.Option(callback=output_folder, help="Folder for pictures and CSV files.")
]
Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of texts and arrivals.")]
Repeats = Annotated[int, typer.Option(min=1, help="Number of seeds, from --seed on.")]
Verifiers = Annotated[int, typer.Option(min=1, max=4096, help="Number of replicas of the target.")]
Workers = Annotated[int, typer.Option(min=1, help="Number of processes; default: all cores.")]
Tokens = Annotated[int, typer.Option(min=1, max=MAX_TOKENS, help="Length of each answer.")]
HopMs = Annotated[
    float, typer.Option(min=0, callback=finite, help="One-way latency between processes.")
]
