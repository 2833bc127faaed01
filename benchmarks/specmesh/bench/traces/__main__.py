"""``specmesh bench traces`` or ``python -m specmesh.bench.traces``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from specmesh.bench.mesh.measure import NUM_VERIFIERS
from specmesh.bench.traces.answers import TracedLoad, traced_answers
from specmesh.bench.traces.path import PathFindings, path_findings
from specmesh.bench.traces.store import StoreFindings, measure_store
from specmesh.cli.local.checks import check_strategy
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.models import RealModels, WaitingModels
from specmesh.cli.runner import run
from specmesh.models import DRAFTER, TARGET
from specmesh.models import path as model_path
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.experiment import GREEDY, SAMPLED, Prompt
from specmesh.tools.kit.options import Json, Tokens
from specmesh.tools.kit.prompts import read_prompts
from specmesh.tools.kit.tables import make_table, table_of
from specmesh.tools.simulate.papers.table2 import ROWS
from specmesh.traces.spans import spans_from
from specmesh.traces.store.limits import MIN_BYTES
from specmesh.traces.trace import Trace

app = App(no_args_is_help=True)

_PROMPT_TOKENS = 16
_VOCABULARY = 256
"""The tokens of waiting models."""
_SAMPLE_STRATEGIES = ("dsi", "speculative", "autoregressive", "branch-prediction")
_MIB = 1024 * 1024


@app.command("path")
def path(
    answers: Annotated[int, typer.Option(min=1, help="Number of answers.")] = 100,
    concurrency: Annotated[int, typer.Option(min=1, help="Number of concurrent answers.")] = 4,
    tokens: Tokens = 50,
    row: Annotated[
        int,
        typer.Option(min=1, max=10, help="Row of DSI's Table 2, for its latencies."),
    ] = 1,
    real: Annotated[
        bool, typer.Option("--real", help="Use the shipped pair with two verifiers instead.")
    ] = False,
    strategy: Annotated[
        str, typer.Option(help="Strategy of the answers.", callback=check_strategy)
    ] = "dsi",
    json_: Json = False,
) -> None:
    """Measure what answers under load wait for, from their traces, and above all the orchestrator's
    share."""

    async def work() -> int:
        directory = Path(mkdtemp(prefix="specmesh-"))
        load = TracedLoad(
            prompts=_prompts(answers, real),
            strategies=(strategy,),
            num_tokens=tokens,
            concurrency=concurrency,
            temperature=SAMPLED if real else GREEDY,
        )
        options = _real() if real else _waiting(row)
        found = await traced_answers(options, load, directory, _say)
        traces = [Trace.of(list(spans_from(groups))) for groups in found.traces]
        findings = path_findings(traces, found.orchestrator)
        if json_:
            typer.echo(json.dumps(asdict(findings)))
        else:
            _print_path(findings)
            _say(
                f"the traces are in {directory / 'traces.sqlite'}: specmesh trace list --store ..."
            )
        return 0

    run(work())


@app.command("store")
def store(
    spans: Annotated[int, typer.Option(min=1000, help="Number of spans in the store.")] = 1_000_000,
    limit_mib: Annotated[
        int,
        typer.Option(min=MIN_BYTES // _MIB, help="Limit of the store that is overfilled, in MiB."),
    ] = 32,
    json_: Json = False,
) -> None:
    """Time list and show on a store with many spans, copied from a real mesh's traces."""

    async def work() -> int:
        directory = Path(mkdtemp(prefix="specmesh-"))
        load = TracedLoad(
            prompts=_prompts(3, real=False),
            strategies=_SAMPLE_STRATEGIES,
            num_tokens=64,
            concurrency=2,
        )
        samples = await traced_answers(_waiting(1), load, directory, _say)
        findings = measure_store(samples.traces, spans, limit_mib, directory, _say)
        if json_:
            typer.echo(json.dumps(asdict(findings)))
        else:
            _print_store(findings)
        return 0

    run(work())


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _prompts(count: int, real: bool) -> Sequence[Prompt]:
    if not real:
        firsts = (number % (_VOCABULARY - _PROMPT_TOKENS) for number in range(count))
        return [tuple(range(first, first + _PROMPT_TOKENS)) for first in firsts]
    shipped = read_prompts(None)
    return [shipped[number % len(shipped)] for number in range(count)]


def _waiting(row: int) -> MeshOptions:
    published = ROWS[row - 1]
    models = WaitingModels(
        target_ms=published.target_ms,
        drafter_ms=published.drafter_ms,
        acceptance=published.acceptance,
    )
    return MeshOptions(models=models, num_verifiers=NUM_VERIFIERS, drain_s=1.0)


def _real() -> MeshOptions:
    models = RealModels(str(model_path(TARGET)), (str(model_path(DRAFTER)),))
    return MeshOptions(models=models, num_verifiers=2, drain_s=1.0)


def _print_path(found: PathFindings) -> None:
    console = Console(highlight=False)
    times = found.answers
    console.print(
        f"{found.num_answers} answers ({found.num_incomplete} more lost spans), "
        f"p50 {times.p50_ms:.0f} ms, p99 {times.p99_ms:.0f} ms"
    )
    table = table_of(
        "What they waited for: medians",
        found.parts,
        (
            ("service", lambda part: part.service),
            ("what", lambda part: part.part),
            ("ms", lambda part: f"{part.p50_ms:.1f}"),
            ("share", lambda part: f"{part.p50_share:.1%}"),
        ),
    )
    console.print(table)
    console.print(
        f"\nThe orchestrator's own time: {found.orchestrator_p50_share:.1%} in the median, "
        f"{found.orchestrator_p90_share:.1%} in the 90th percentile,\n"
        f"{found.longest_ms:.1f} ms at the longest. Waiting there for a core took "
        f"another {found.orchestrator_core_p50_share:.1%}.\nIts own time by span, on average:"
    )
    for name, share in found.orchestrator_spans.items():
        console.print(f"  {share:6.2%}  {name}")
    if (stops := found.stops) is not None:
        console.print(
            f"From a rejection to the end of the last work that it made useless: "
            f"p50 {stops.p50_ms:.1f} ms,\np99 {stops.p99_ms:.1f} ms ({stops.count} rejections)."
        )
    if found.orchestrator is not None:
        ran, waited = found.orchestrator.ran, found.orchestrator.waited
        console.print(f"It ran {ran:.0%} of the time, and waited {waited:.0%} for a core.")


def _print_store(found: StoreFindings) -> None:
    console = Console(highlight=False)
    console.print(
        f"{found.num_traces} traces, {found.num_spans} spans, {found.mib:.0f} MiB, "
        f"written in {found.fill_s:.0f} s"
    )
    table = make_table("Milliseconds, in the median", "what", "ms")
    for name, ms in found.list_ms.items():
        table.add_row(f"list: {name}", f"{ms:.1f}")
    table.add_row(f"show, of up to {found.show_spans} spans", f"{found.show_ms:.1f}")
    table.add_row("the whole command 'trace list'", f"{found.list_command_ms:.0f}")
    table.add_row("the whole command 'trace show'", f"{found.show_command_ms:.0f}")
    console.print(table)
    console.print(
        f"\nMaxima: list {found.list_max_ms:.1f} ms, show {found.show_max_ms:.1f} ms.\n"
        f"A store limited to {found.limit_mib} MiB reached {found.peak_mib:.1f} MiB."
    )


if __name__ == "__main__":
    app(prog_name="specmesh bench traces")
