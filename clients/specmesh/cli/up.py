"""``specmesh up``, which runs a mesh on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, ClassVar

import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.checks import check_heads, check_port, check_strategy
from specmesh.cli.local.mesh import LocalMesh, MeshOptions, SamplingDefaults
from specmesh.cli.local.model_options import ModelOptions
from specmesh.cli.local.options import CalibrationFile, Lookahead, RedisUrl, Threads, TreesFile
from specmesh.cli.local.traces import (
    COLLECTOR,
    NOT_SENDING,
    Keep,
    TraceKeeping,
    sent_elsewhere,
)
from specmesh.cli.runner import run, until_signalled
from specmesh.cli.trace.options import TraceStore
from specmesh.traces.store.schema import default_path


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationDefaults:
    """The mesh's speculation, as far as requests leave it open."""

    help_panel: ClassVar = "Speculation"

    strategy: Annotated[
        str,
        typer.Option(
            help="Use this strategy for requests that name none.", callback=check_strategy
        ),
    ] = "auto"
    lookahead: Lookahead = None
    trees: TreesFile = None
    confidence: Annotated[
        int,
        typer.Option(
            min=0, help="Start this many replicas of the confidence service, for strategy filter."
        ),
    ] = 1
    calibration: CalibrationFile = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """The traces that are kept."""

    help_panel: ClassVar = "Traces"

    trace: Annotated[
        Keep | None,
        typer.Option(
            help="Choose the traces to keep: 'ratio' keeps those of slow and failed answers, and a "
            "share of the others.",
            show_default=f"{Keep.RATIO}, or sent to OTEL_EXPORTER_OTLP_ENDPOINT if it is set",
        ),
    ] = None
    store: TraceStore = None
    record_content: Annotated[
        bool,
        typer.Option("--record-content", help="Record the texts of tokens in traces."),
    ] = False

    def keeping(self) -> TraceKeeping | None:
        """Return how to keep traces; None if they are sent elsewhere, which is printed, or off."""
        elsewhere = sent_elsewhere()
        if self.trace is None and elsewhere is not None:
            typer.echo(f"traces go to {elsewhere}", err=True)
            return None
        keep = self.trace or Keep.RATIO
        return None if keep is Keep.OFF else TraceKeeping(keep, self.store or default_path())


def up(
    verifiers: Annotated[
        int, typer.Option(min=1, help="Start this many replicas of the target.")
    ] = 1,
    *,
    models: ModelOptions,
    speculation: SpeculationDefaults,
    threads: Threads = 1,
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            help="Let the orchestrator listen on this port; 0 takes any free one.",
            callback=check_port,
        ),
    ] = 50051,
    redis_url: RedisUrl = None,
    generation_config: Annotated[
        SamplingDefaults,
        typer.Option(
            help="Take the sampling defaults of requests from the model's generation_config.json, "
            "or its plain distribution."
        ),
    ] = SamplingDefaults.NONE,
    traces: TraceOptions,
    drain_seconds: Annotated[
        float,
        typer.Option(min=0, help="Let answers continue for this many seconds after Ctrl-C."),
    ] = 5.0,
) -> None:
    """Run a mesh on this machine. Ctrl-C drains and stops it; a second Ctrl-C kills it."""
    if traces.trace is Keep.OFF and traces.record_content:
        raise typer.BadParameter("can't be used with --trace off", param_hint="--record-content")

    async def work() -> int:
        chosen = models.real_models(threads)
        check_heads(speculation.strategy, chosen.heads)
        options = MeshOptions(
            models=chosen,
            num_verifiers=verifiers,
            num_confidence=speculation.confidence,
            calibration=speculation.calibration or models.pair.calibration,
            threads=threads,
            strategy=speculation.strategy,
            lookahead=speculation.lookahead,
            trees=speculation.trees,
            port=port,
            redis_url=redis_url,
            sampling_defaults=generation_config,
            drain_s=drain_seconds,
            traces=traces.keeping(),
            record_content=traces.record_content,
            environment=NOT_SENDING if traces.trace is Keep.OFF else {},
        )
        directory = Path(mkdtemp(prefix="specmesh-"))
        typer.echo(f"starting the mesh; logs are in {directory}")
        mesh = LocalMesh(options, directory, report=_report)
        status = await until_signalled(_serve(mesh, traces.store), mesh.kill)
        if status != ExitStatus.INTERRUPTED:
            return status
        if mesh.address:
            return ExitStatus.OK
        typer.echo("specmesh: interrupted; the mesh was not up", err=True)
        return ExitStatus.INTERRUPTED

    run(work())


def _report(line: str) -> None:
    # The mesh runs on where nobody can be told, because standard error is on a full disk, say.
    with suppress(OSError):
        typer.echo(line, err=True)


async def _serve(mesh: LocalMesh, store: Path | None) -> int:
    try:
        async with mesh:
            typer.echo("the mesh is up:")
            for name, address in mesh.addresses.items():
                typer.echo(f"  {name:<14} {address:<22} pid {mesh.pids[name]}")
            asked = f"--target {mesh.address} --max-tokens 64 'def fibonacci(n):'"
            typer.echo(f"try: specmesh generate {asked}")
            if COLLECTOR in mesh.addresses:
                kept = "" if store is None else f" --store {shlex.quote(str(store))}"
                typer.echo(
                    f"     specmesh trace show last{kept}  # a few seconds later: where time went"
                )
            await asyncio.Event().wait()
            return 0
    finally:
        if mesh.address:
            typer.echo("the mesh is down")
