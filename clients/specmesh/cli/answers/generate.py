"""``specmesh generate``, which prints an answer in one of several forms."""

from __future__ import annotations

from typing import Annotated

import typer

from specmesh.cli.answers.input import read_input
from specmesh.cli.answers.output import Form, in_words, write
from specmesh.cli.answers.request import (
    SPECULATION,
    STOPPING,
    MaxTokens,
    Mode,
    ModelName,
    Seed,
    Stops,
    StrategyName,
    StrategyOptions,
    Temperature,
    Timeout,
    TopK,
    TopP,
    check_options,
    strategy_options,
)
from specmesh.cli.answers.waiting import Waiting
from specmesh.cli.connection import (
    Targets,
    TlsCa,
    TlsCert,
    TlsKey,
    TokenPath,
    client_options,
)
from specmesh.cli.runner import run
from specmesh.client import AsyncClient, Filter, SpecmeshError
from specmesh.client.connections.addresses import DEFAULT_TARGET

_OUTPUT = "Output"
"""A group of options in the help."""


def generate(
    prompt: Annotated[
        str, typer.Argument(help="Continue this text; '-' reads it from standard input.")
    ],
    target: Targets = [DEFAULT_TARGET],  # noqa: B006 - typer copies it
    model: ModelName = "",
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    mode: Mode = None,
    stop: Stops = None,
    ignore_end_of_text: Annotated[
        bool,
        typer.Option(
            "--ignore-end-of-text",
            help="Continue to --max-tokens even if the model ends its answer.",
            rich_help_panel=STOPPING,
        ),
    ] = False,
    strategy: StrategyName = "",
    option: StrategyOptions = None,
    scorer: Annotated[
        str,
        typer.Option(
            help="Score draft tokens by this scorer, with strategy filter.",
            rich_help_panel=SPECULATION,
        ),
    ] = "",
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Keep draft tokens with a score above this without verifying them, with strategy "
            "filter.",
            rich_help_panel=SPECULATION,
        ),
    ] = None,
    escalation_rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Verify this share of all sessions' draft tokens, with strategy filter; excludes "
            "--threshold.",
            rich_help_panel=SPECULATION,
        ),
    ] = None,
    request_id: Annotated[
        str, typer.Option(help="Continue the answer that was begun under this id, if any.")
    ] = "",
    timeout: Timeout = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=_OUTPUT)
    ] = False,
    ndjson: Annotated[
        bool,
        typer.Option(
            "--ndjson",
            help="Print one JSON object per line: each chunk, then the result.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
    logprobs: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=20,
            help="Add the log-probabilities of each token and of this many likeliest ones to "
            "--json or --ndjson.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    show_speculation: Annotated[
        bool,
        typer.Option(
            "--show-speculation",
            help="Colour or mark each token by its origin, such as drafted or recovered.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
    stats: Annotated[
        bool,
        typer.Option("--stats", help="Print statistics of the answer.", rich_help_panel=_OUTPUT),
    ] = False,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    token_file: TokenPath = None,
) -> None:
    """Continue a text and print the answer as it arrives."""
    if prompt == "-":
        prompt = read_input()
    if logprobs is not None and not (json_ or ndjson):
        raise typer.BadParameter("requires --json or --ndjson", param_hint="--logprobs")
    if threshold is not None and escalation_rate is not None:
        raise typer.BadParameter("excludes --escalation-rate", param_hint="--threshold")
    form = _form(json_, ndjson, show_speculation)
    judged = (scorer, threshold, escalation_rate)
    kept = Filter(*judged) if judged != ("", None, None) else None
    options = strategy_options(option or ())
    connection = client_options(target, tls_ca, tls_cert, tls_key, token_file)

    async def work() -> int:
        waiting = Waiting()
        async with AsyncClient(*target, hooks=waiting.hooks, **connection) as client:
            if options:
                check_options(await client.list_models(), model, strategy, options)
            stream = client.generate(
                prompt,
                model=model,
                max_tokens=max_tokens,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                seed=seed,
                acceptance_mode=mode,
                stop_strings=stop or (),
                ignore_end_of_text=ignore_end_of_text,
                strategy=strategy,
                filter=kept,
                num_top_logprobs=logprobs,
                request_id=request_id,
                timeout_s=timeout,
                **options,
            )
            await write(stream, form, waiting)
            if stats:
                has_drafter = None
                if not stream.result.stats.num_drafted_tokens:
                    has_drafter = await any_drafter(client, stream.result.model)
                typer.echo(in_words(stream.result, has_drafter), err=True)
        return 0

    as_json = form in {Form.JSON, Form.NDJSON}
    run(work(), json_errors=as_json, targets=target, tls=connection["tls"])


async def any_drafter(client: AsyncClient, model: str) -> bool | None:
    """Return whether the mesh has a drafter for ``model`` now; None if the mesh can't be asked."""
    try:
        served = await client.list_models()
    except SpecmeshError:
        return None
    return any(each.drafters for each in served if each.target.name == model)


def _form(json_: bool, ndjson: bool, show_speculation: bool) -> Form:
    wanted = [
        form
        for form, is_wanted in (
            (Form.JSON, json_),
            (Form.NDJSON, ndjson),
            (Form.SPECULATION, show_speculation),
        )
        if is_wanted
    ]
    if len(wanted) > 1:
        raise typer.BadParameter("--json, --ndjson and --show-speculation exclude each other")
    return wanted[0] if wanted else Form.TEXT
