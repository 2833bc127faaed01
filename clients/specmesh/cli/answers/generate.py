"""``specmesh generate``: an answer, in one of several forms."""

from __future__ import annotations

from typing import Annotated

import typer

from specmesh.cli.answers.input import read_input
from specmesh.cli.answers.output import Form, in_words, write
from specmesh.cli.answers.request import (
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


def generate(
    prompt: Annotated[str, typer.Argument(help="What to continue; '-' reads standard input.")],
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
            "--ignore-end-of-text", help="Go on to --max-tokens though the model ends its answer."
        ),
    ] = False,
    strategy: StrategyName = "",
    option: StrategyOptions = None,
    scorer: Annotated[str, typer.Option(help="What strategy filter judges a draft token by.")] = "",
    threshold: Annotated[
        float | None, typer.Option(help="Score above which it keeps one unchecked.")
    ] = None,
    escalation_rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Or: the share, of all sessions' tokens, for which it asks the target.",
        ),
    ] = None,
    logprobs: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=20,
            help="Log-probability of each token and of so many of the likeliest; for --json and "
            "--ndjson.",
        ),
    ] = None,
    request_id: Annotated[
        str, typer.Option(help="The same id again carries on what was begun under it.")
    ] = "",
    timeout: Timeout = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    ndjson: Annotated[
        bool, typer.Option("--ndjson", help="Print a JSON object a line: each chunk, the result.")
    ] = False,
    show_speculation: Annotated[
        bool,
        typer.Option(
            "--show-speculation", help="Colour the text, or mark it, by how its tokens came about."
        ),
    ] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Say what it took.")] = False,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    token_file: TokenPath = None,
) -> None:
    """Continue a text, printing the answer as it comes."""
    if prompt == "-":
        prompt = read_input()
    if logprobs is not None and not (json_ or ndjson):
        raise typer.BadParameter("goes with --json or --ndjson", param_hint="--logprobs")
    if threshold is not None and escalation_rate is not None:
        raise typer.BadParameter("goes without --escalation-rate", param_hint="--threshold")
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
    """Whether the mesh has a drafter for ``model`` now; None if it doesn't say."""
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
        raise typer.BadParameter("one of --json, --ndjson and --show-speculation at most")
    return wanted[0] if wanted else Form.TEXT
