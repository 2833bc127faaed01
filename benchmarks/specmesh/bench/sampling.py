"""``specmesh bench sampling``: what choosing and accepting tokens takes beside the argmax of the
logits, by the size of the vocabulary.

The logits fall with the logarithm of a token's rank, as models' do. Each draft is a chain that the
target accepts as a whole, so that every row of logits is needed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from specmesh.cli.tables import WholeTable
from specmesh.decoding.acceptance import verify
from specmesh.decoding.compiled import choice as compiled
from specmesh.decoding.drafting import draw_children
from specmesh.decoding.noise import Purpose, uniforms
from specmesh.decoding.sampling import AcceptanceMode, Distribution, Sampling, choose
from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.model import Logits
from specmesh.inference.team import team_for
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import Json
from specmesh.tools.kit.tables import table_of

ENTRIES = (4_096, 32_000, 151_936, 262_144)
WIDTHS = (1, 8, 16)
NUM_CHOICES = 8

_TEMPERATURE = 0.8
_SETTINGS = {
    "plain": Sampling(_TEMPERATURE),
    "top-k 50": Sampling(_TEMPERATURE, top_k=50),
    "top-p 0.95": Sampling(_TEMPERATURE, top_p=0.95),
}


@dataclass(frozen=True, slots=True)
class ChoiceTimes:
    """Processor times in ms, the least of several tries.

    ``ms_per_verify`` is that of a chain of ``width`` tokens, all accepted, and ``ms_per_row`` its
    share of each row of logits. ``draft_ms_per_row`` is a drafter's choice of a token with its 8
    top tokens, ``argmax_ms_per_row`` the argmax of the logits alone.
    """

    entries: int
    mode: str
    settings: str
    width: int
    ms_per_row: float
    ms_per_verify: float
    draft_ms_per_row: float
    argmax_ms_per_row: float


def measure(num_entries: int, num_tries: int) -> Iterator[ChoiceTimes]:
    """Yield the times with a vocabulary of ``num_entries``."""
    rows = _logits(num_entries, max(WIDTHS) + 1)
    argmax_ms = _least_ms(num_tries, _argmax, rows) / len(rows)
    for mode in AcceptanceMode:
        for name, sampling in _settings(mode):
            draft_ms = _least_ms(num_tries, _draft, rows, sampling) / len(rows)
            tokens, distributions = _accepted(rows[:-1], sampling)
            for width in WIDTHS:
                call = (TokenTree.chain(tokens[:width]), rows[: width + 1], sampling, 0)
                assert len(verify(*call, distributions).accepted_nodes) == width
                ms = _least_ms(num_tries, verify, *call, distributions)
                yield ChoiceTimes(
                    *(num_entries, mode.name.lower(), name, width),
                    *(ms / (width + 1), ms, draft_ms, argmax_ms),
                )


def _settings(mode: AcceptanceMode) -> list[tuple[str, Sampling]]:
    if mode is AcceptanceMode.GREEDY:
        return [("plain", Sampling(temperature=0))]
    return [(name, replace(sampling, mode=mode)) for name, sampling in _SETTINGS.items()]


def _logits(num_entries: int, num_rows: int) -> Logits:
    rng = np.random.default_rng(num_entries)
    ranks = np.array([rng.permutation(num_entries) for _ in range(num_rows)])
    jitter = rng.normal(scale=0.3, size=ranks.shape)
    logits: Logits = (jitter - 1.2 * np.log1p(ranks)).astype(np.float32)
    return logits


def _argmax(rows: Logits) -> None:
    for row in rows:
        row.argmax()


def _draft(rows: Logits, sampling: Sampling) -> None:
    for position, row in enumerate(rows):
        draw_children(row, sampling, position, 1, NUM_CHOICES)


def _accepted(rows: Logits, sampling: Sampling) -> tuple[list[int], dict[int, Distribution]]:
    """Return tokens that the target accepts after each other, and the distributions that a drafter
    with the same logits draws them from in rejection mode."""
    if sampling.mode is not AcceptanceMode.REJECTION:
        return [choose(row, sampling, position) for position, row in enumerate(rows)], {}
    tokens, distributions = [], {}
    for position, row in enumerate(rows):
        drawn = draw_children(row, sampling, position, 1)
        assert drawn.distribution is not None
        distributions[position] = drawn.distribution
        noise = uniforms(sampling.seed, position, Purpose.ACCEPT, drawn.distribution.token_ids)
        tokens.append(int(drawn.distribution.token_ids[noise.argmin()]))
    return tokens, distributions


def _least_ms(num_tries: int, work: Callable[..., object], *arguments: Any) -> float:
    times = []
    for _ in range(num_tries):
        began = time.thread_time_ns()
        work(*arguments)
        times.append(time.thread_time_ns() - began)
    return min(times) / 1e6


app = App()


@app.command()
def main(
    entries: Annotated[
        list[int] | None,
        typer.Option(
            min=64,
            help="Size of the vocabulary. May be repeated.",
            show_default=", ".join(map(str, ENTRIES)),
        ),
    ] = None,
    tries: Annotated[int, typer.Option(min=1, help="Tries of which the fastest counts.")] = 20,
    json_: Json = False,
) -> None:
    """Time the choice and the acceptance of tokens on one core, beside the argmax of the logits, by
    the size of the vocabulary."""
    compiled.prepare(team_for)
    rows = [row for size in entries or ENTRIES for row in measure(size, tries)]
    if json_:
        typer.echo(json.dumps({"rows": [asdict(row) for row in rows]}))
        return
    Console().print(table(rows))


def table(rows: Sequence[ChoiceTimes]) -> WholeTable:
    """Return the times as a table."""
    columns: list[tuple[str, Callable[[ChoiceTimes], str]]] = [
        ("mode", lambda row: f"{row.mode}, {row.settings}"),
        ("entries", lambda row: f"{row.entries:,}"),
        ("width", lambda row: str(row.width)),
        ("row", lambda row: f"{row.ms_per_row:.3f}"),
        ("chain", lambda row: f"{row.ms_per_verify:.3f}"),
        ("draft token", lambda row: f"{row.draft_ms_per_row:.3f}"),
        ("argmax", lambda row: f"{row.argmax_ms_per_row:.3f}"),
    ]
    return table_of("Processor time, ms", rows, columns)


if __name__ == "__main__":
    app(prog_name="specmesh bench sampling")
