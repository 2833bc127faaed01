"""``specmesh up``: a mesh on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated
from urllib.parse import urlsplit

import typer
from typer import CallbackParam

from specmesh import models
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.checks import (
    check_backend,
    check_drafters,
    check_folder,
    check_heads,
    check_model,
    check_port,
    check_redis_url,
    check_strategy,
    check_template,
    check_trees,
)
from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.cli.local.models import DRAFTER_BACKENDS, EngineBackend, RealModels
from specmesh.cli.local.traces import COLLECTOR, Keep, TraceKeeping, sent_elsewhere
from specmesh.cli.runner import run, until_signalled
from specmesh.cli.trace.options import TraceStore
from specmesh.traces.store.schema import default_path

TargetModel = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="Folder or Hugging Face id of the target.",
        show_default="shipped",
        callback=check_model,
    ),
]
DrafterModels = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter",
        help=f"The same for the drafter, or {', '.join(DRAFTER_BACKENDS)}; several times for "
        "several drafters, the best first.",
        show_default="shipped",
        callback=check_drafters,
    ),
]
TargetRevision = Annotated[
    str,
    typer.Option(
        help="Branch, tag or commit of the target, if that is a Hugging Face id.",
        show_default="its main branch",
    ),
]
DrafterRevisions = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter-revision",
        help="The same for the drafter; of several that are models once for each, in their order.",
        show_default="the main branch",
    ),
]
HeadsFolder = Annotated[
    Path | None,
    typer.Option(
        "--heads",
        help="Folder of heads that were trained for the target, for strategy heads.",
        show_default="shipped, if there are any, for the shipped target",
        callback=check_folder,
    ),
]
CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="What 'specmesh calibrate confidence' wrote of the pair.",
        show_default="shipped, for the shipped pair",
    ),
]
TreesFile = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="What 'specmesh calibrate tree' wrote of the pair.",
        show_default="none",
        callback=check_trees,
    ),
]
TargetBackend = Annotated[
    EngineBackend,
    typer.Option(
        help="What computes the target; vllm takes an environment with vLLM.",
        callback=check_backend,
    ),
]
DrafterBackend = Annotated[
    EngineBackend,
    typer.Option(help="The same for drafters that are models.", callback=check_backend),
]
DefaultStrategy = Annotated[
    str,
    typer.Option(
        "--strategy", help="Strategy of requests that name none.", callback=check_strategy
    ),
]
Port = Annotated[
    int,
    typer.Option(min=0, max=65535, help="Of the orchestrator; 0 is any.", callback=check_port),
]
ChatTemplate = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="How the target is asked in chats, in Jinja.",
        show_default="the target's own",
        callback=check_template,
    ),
]
Lookahead = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=64,
        help="Draft tokens that a verification covers.",
        show_default="what suits the strategy",
    ),
]
Threads = Annotated[int, typer.Option(min=1, help="Threads of each process with a model.")]


def _from_environment(
    context: typer.Context, parameter: CallbackParam, url: str | None
) -> str | None:
    """``url``; refuses a password on the command line, where ps shows it to everybody."""
    source = context.get_parameter_source(parameter.name or "")
    typed = source is not None and source.name == "COMMANDLINE"
    if url and typed and urlsplit(url).password:
        raise typer.BadParameter("a URL with a password is for the environment: set REDIS_URL")
    return check_redis_url(url)


RedisUrl = Annotated[
    str | None,
    typer.Option(
        envvar="REDIS_URL",
        help="Redis that keeps sessions; with a password only as REDIS_URL.",
        show_default="a Redis of its own",
        callback=_from_environment,
    ),
]

Traces = Annotated[
    Keep | None,
    typer.Option(
        help="Traces to keep: 'ratio' is slow and failed answers, and a share of the others.",
        show_default=f"{Keep.RATIO}, or off where OTEL_EXPORTER_OTLP_ENDPOINT has them sent",
    ),
]
RecordContent = Annotated[
    bool, typer.Option("--record-content", help="Put the texts of tokens into traces.")
]


def up(
    verifiers: Annotated[int, typer.Option(min=1, help="Replicas of the target.")] = 1,
    target: TargetModel = None,
    revision: TargetRevision = "",
    drafter: DrafterModels = None,
    drafter_revision: DrafterRevisions = None,
    backend: TargetBackend = EngineBackend.TRANSFORMERS,
    drafter_backend: DrafterBackend = EngineBackend.TRANSFORMERS,
    heads: HeadsFolder = None,
    chat_template: ChatTemplate = None,
    confidence: Annotated[
        int, typer.Option(min=0, help="Replicas of the confidence service, for strategy filter.")
    ] = 1,
    calibration: CalibrationFile = None,
    strategy: DefaultStrategy = "speculative",
    lookahead: Lookahead = None,
    trees: TreesFile = None,
    threads: Threads = 1,
    port: Port = 50051,
    redis_url: RedisUrl = None,
    trace: Traces = None,
    store: TraceStore = None,
    record_content: RecordContent = False,
    drain_seconds: Annotated[
        float, typer.Option(min=0, help="How long answers may go on after Ctrl-C.")
    ] = 5.0,
) -> None:
    """Start a mesh on this machine; Ctrl-C drains and ends it, twice kills it."""
    if trace is Keep.OFF and record_content:
        raise typer.BadParameter("goes without --trace off", param_hint="--record-content")

    async def work() -> int:
        chosen = replace(
            real_models(target, drafter, threads, chat_template, heads, backend, drafter_backend),
            revision=revision,
            drafter_revisions=tuple(drafter_revision or ()),
        )
        check_revisions(chosen)
        check_heads(strategy, chosen.heads)
        options = MeshOptions(
            models=chosen,
            num_verifiers=verifiers,
            num_confidence=confidence,
            calibration=calibration or shipped_calibration(target, drafter),
            threads=threads,
            strategy=strategy,
            lookahead=lookahead,
            trees=trees,
            port=port,
            redis_url=redis_url,
            drain_s=drain_seconds,
            traces=_keeping(trace, store),
            record_content=record_content,
        )
        directory = Path(mkdtemp(prefix="specmesh-"))
        typer.echo(f"starting; logs are in {directory}")
        mesh = LocalMesh(options, directory, report=lambda line: typer.echo(line, err=True))
        status = await until_signalled(_serve(mesh), mesh.kill)
        return 0 if status == ExitStatus.INTERRUPTED else status

    run(work())


def _keeping(wanted: Keep | None, store: Path | None) -> TraceKeeping | None:
    elsewhere = sent_elsewhere()
    if wanted is None and elsewhere is not None:
        typer.echo(f"traces go to {elsewhere}", err=True)
        return None
    keep = wanted or Keep.RATIO
    return None if keep is Keep.OFF else TraceKeeping(keep, store or default_path())


def real_models(
    target: str | None,
    drafters: Sequence[str] | None,
    threads: int,
    chat_template: Path | None = None,
    heads: Path | None = None,
    backend: EngineBackend = EngineBackend.TRANSFORMERS,
    drafter_backend: EngineBackend = EngineBackend.TRANSFORMERS,
) -> RealModels:
    """The models named, or those shipped; heads are shipped for the shipped target alone, and run
    in our own engine."""
    has_own = target is None and backend is EngineBackend.TRANSFORMERS
    return RealModels(
        target or str(models.path(models.TARGET)),
        tuple(drafters or (str(models.path(models.DRAFTER)),)),
        threads,
        chat_template,
        heads or (models.heads() if has_own else None),
        backend,
        drafter_backend,
    )


def check_revisions(models: RealModels) -> None:
    """Raise BadParameter for a revision of what has none, before anything loads."""
    named = [name for name in models.drafter_names if name not in DRAFTER_BACKENDS]
    revisions = models.drafter_revisions
    if revisions and len(revisions) != len(named):
        raise typer.BadParameter(
            f"--drafter-revision is given {len(revisions)} times, and there are {len(named)} "
            "drafters that are models"
        )
    pairs = [("--revision", models.target)] if models.revision else []
    pairs += [("--drafter-revision", name) for name in named[: len(revisions)]]
    for option, name in pairs:
        if Path(name).exists():
            raise typer.BadParameter(f"{option} is for Hugging Face ids, and {name!r} is a folder")


def shipped_calibration(target: str | None, drafters: Sequence[str] | None) -> Path | None:
    """The shipped calibration, if both models are the shipped ones: it is wrong for others."""
    return None if target or drafters else models.CALIBRATION


async def _serve(mesh: LocalMesh) -> int:
    try:
        async with mesh:
            typer.echo("the mesh is up:")
            for name, address in mesh.addresses.items():
                typer.echo(f"  {name:<14} {address:<22} pid {mesh.pids[name]}")
            asked = f"--target {mesh.address} --max-tokens 64 'def fibonacci(n):'"
            typer.echo(f"try: specmesh generate {asked}")
            if COLLECTOR in mesh.addresses:
                typer.echo("     specmesh trace show last  # seconds later: where its time went")
            await asyncio.Event().wait()
            return 0
    finally:
        if mesh.address:
            typer.echo("the mesh is down")
