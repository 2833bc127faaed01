"""``specmesh up``, which runs a mesh on this machine until Ctrl-C."""

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
from specmesh.cli.trace.options import store_option
from specmesh.traces.store.schema import default_path

_MODELS, _SPECULATION, _TRACES = "Models", "Speculation", "Traces"
"""Groups of options in the help."""

TargetModel = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="Load the target from this folder or Hugging Face id.",
        show_default="the shipped target",
        callback=check_model,
        rich_help_panel=_MODELS,
    ),
]
DrafterModels = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter",
        help="Load a drafter from this folder or Hugging Face id, or use one without a model: "
        f"{', '.join(DRAFTER_BACKENDS)}. Repeat the option for several, the best first.",
        show_default="the shipped drafter",
        callback=check_drafters,
        rich_help_panel=_MODELS,
    ),
]
TargetRevision = Annotated[
    str,
    typer.Option(
        help="Use this branch, tag or commit of a target from Hugging Face.",
        show_default="the main branch",
        rich_help_panel=_MODELS,
    ),
]
DrafterRevisions = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter-revision",
        help="Use this branch, tag or commit of a drafter from Hugging Face; repeat the option for "
        "each drafter that is a model, in their order.",
        show_default="the main branch",
        rich_help_panel=_MODELS,
    ),
]
HeadsFolder = Annotated[
    Path | None,
    typer.Option(
        "--heads",
        help="Load heads trained for the target from this folder, for strategy heads.",
        show_default="the shipped heads, if any, for the shipped target",
        callback=check_folder,
        rich_help_panel=_MODELS,
    ),
]
CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="Read the pair's calibration, which 'specmesh calibrate confidence' writes.",
        show_default="the shipped one, for the shipped pair",
        rich_help_panel=_SPECULATION,
    ),
]
TreesFile = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="Read the pair's trees, which 'specmesh calibrate tree' writes.",
        show_default="none",
        callback=check_trees,
        rich_help_panel=_SPECULATION,
    ),
]
TargetBackend = Annotated[
    EngineBackend,
    typer.Option(
        help="Run the target in this engine; vllm must be installed in this environment.",
        callback=check_backend,
        rich_help_panel=_MODELS,
    ),
]
DrafterBackend = Annotated[
    EngineBackend,
    typer.Option(
        help="Run drafters that are models in this engine.",
        callback=check_backend,
        rich_help_panel=_MODELS,
    ),
]
ConfidenceReplicas = Annotated[
    int,
    typer.Option(
        min=0,
        help="Start this many replicas of the confidence service, for strategy filter.",
        rich_help_panel=_SPECULATION,
    ),
]
DefaultStrategy = Annotated[
    str,
    typer.Option(
        "--strategy",
        help="Use this strategy for requests that name none.",
        callback=check_strategy,
        rich_help_panel=_SPECULATION,
    ),
]
Port = Annotated[
    int,
    typer.Option(
        min=0,
        max=65535,
        help="Let the orchestrator listen on this port; 0 takes any free one.",
        callback=check_port,
    ),
]
ChatTemplate = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="Render chats with this Jinja template.",
        show_default="the target's own",
        callback=check_template,
        rich_help_panel=_MODELS,
    ),
]
Lookahead = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=64,
        help="Verify this many draft tokens at a time.",
        show_default="chosen by the strategy",
        rich_help_panel=_SPECULATION,
    ),
]
Threads = Annotated[
    int, typer.Option(min=1, help="Use this many threads in each process with a model.")
]


def _from_environment(
    context: typer.Context, parameter: CallbackParam, url: str | None
) -> str | None:
    """Return ``url``; refuse a password on the command line, where ps shows it to every user."""
    source = context.get_parameter_source(parameter.name or "")
    typed = source is not None and source.name == "COMMANDLINE"
    if url and typed and urlsplit(url).password:
        raise typer.BadParameter(
            "ps would show the password to every user: set the variable REDIS_URL instead"
        )
    return check_redis_url(url)


RedisUrl = Annotated[
    str | None,
    typer.Option(
        envvar="REDIS_URL",
        help="Store sessions in this Redis; a URL with a password must be given as REDIS_URL.",
        show_default="its own Redis",
        callback=_from_environment,
    ),
]

Traces = Annotated[
    Keep | None,
    typer.Option(
        help="Choose the traces to keep: 'ratio' keeps those of slow and failed answers, and a "
        "share of the others.",
        show_default=f"{Keep.RATIO}, or off if OTEL_EXPORTER_OTLP_ENDPOINT is set",
        rich_help_panel=_TRACES,
    ),
]
Store = Annotated[Path | None, store_option(_TRACES)]
RecordContent = Annotated[
    bool,
    typer.Option(
        "--record-content",
        help="Record the texts of tokens in traces.",
        rich_help_panel=_TRACES,
    ),
]


def up(
    verifiers: Annotated[
        int, typer.Option(min=1, help="Start this many replicas of the target.")
    ] = 1,
    target: TargetModel = None,
    revision: TargetRevision = "",
    drafter: DrafterModels = None,
    drafter_revision: DrafterRevisions = None,
    backend: TargetBackend = EngineBackend.TRANSFORMERS,
    drafter_backend: DrafterBackend = EngineBackend.TRANSFORMERS,
    heads: HeadsFolder = None,
    chat_template: ChatTemplate = None,
    strategy: DefaultStrategy = "speculative",
    lookahead: Lookahead = None,
    trees: TreesFile = None,
    confidence: ConfidenceReplicas = 1,
    calibration: CalibrationFile = None,
    threads: Threads = 1,
    port: Port = 50051,
    redis_url: RedisUrl = None,
    trace: Traces = None,
    store: Store = None,
    record_content: RecordContent = False,
    drain_seconds: Annotated[
        float,
        typer.Option(min=0, help="Let answers continue for this many seconds after Ctrl-C."),
    ] = 5.0,
) -> None:
    """Run a mesh on this machine. Ctrl-C drains and stops it; a second Ctrl-C kills it."""
    if trace is Keep.OFF and record_content:
        raise typer.BadParameter("can't be used with --trace off", param_hint="--record-content")

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
        typer.echo(f"starting the mesh; logs are in {directory}")
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
    """Return the named models, by default the shipped ones. The shipped heads fit only the shipped
    target in the transformers engine."""
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
    """Raise BadParameter for a revision of a folder, or for a wrong number of them."""
    named = [name for name in models.drafter_names if name not in DRAFTER_BACKENDS]
    revisions = models.drafter_revisions
    if revisions and len(revisions) != len(named):
        raise typer.BadParameter(
            f"--drafter-revision is given {len(revisions)} times, but the number of drafters that "
            f"are models is {len(named)}"
        )
    pairs = [("--revision", models.target)] if models.revision else []
    pairs += [("--drafter-revision", name) for name in named[: len(revisions)]]
    for option, name in pairs:
        if Path(name).exists():
            raise typer.BadParameter(f"{option} is for Hugging Face ids, but {name!r} is a folder")


def shipped_calibration(target: str | None, drafters: Sequence[str] | None) -> Path | None:
    """Return the shipped calibration if both models are the shipped ones; it fits no others."""
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
                typer.echo("     specmesh trace show last  # a few seconds later: where time went")
            await asyncio.Event().wait()
            return 0
    finally:
        if mesh.address:
            typer.echo("the mesh is down")
