"""``specmesh generate`` and ``specmesh models``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from specmesh.cli.runner import run
from specmesh.client import (
    AcceptanceMode,
    Client,
    Filter,
    GenerationResult,
    GenerationStream,
    Model,
)
from specmesh.client.requests import STRATEGY_OPTIONS, read_option

Target = Annotated[
    list[str],
    typer.Option(
        "--target",
        "-t",
        envvar="SPECMESH_TARGET",
        help="Orchestrator, host:port; repeat it for several.",
    ),
]
DEFAULT_TARGET = "127.0.0.1:50051"


_MAX_UINT32 = 2**32 - 1
_MAX_UINT64 = 2**64 - 1


def generate(
    prompt: Annotated[str, typer.Argument(help="What to continue; '-' reads standard input.")],
    target: Target = [DEFAULT_TARGET],  # noqa: B006 - typer copies it
    model: Annotated[str, typer.Option(help="Default: the only one.")] = "",
    max_tokens: Annotated[
        int | None, typer.Option(min=0, max=_MAX_UINT32, help="Limit of the answer.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    top_k: Annotated[
        int | None, typer.Option(min=0, max=_MAX_UINT32, help="0 keeps all tokens.")
    ] = None,
    top_p: Annotated[float | None, typer.Option(help="1 keeps all tokens.")] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=_MAX_UINT64,
            help="Equal seeds give equal answers; with strategy filter only at a --threshold.",
        ),
    ] = None,
    mode: Annotated[
        AcceptanceMode | None, typer.Option(help="What 'lossless' means when sampling.")
    ] = None,
    stop: Annotated[list[str] | None, typer.Option(help="String that ends the answer.")] = None,
    ignore_end_of_text: Annotated[bool, typer.Option("--ignore-end-of-text")] = False,
    strategy: Annotated[str, typer.Option(help="See 'specmesh models'.")] = "",
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help=f"Option of the strategy: {', '.join(STRATEGY_OPTIONS)}. Repeat it for several.",
        ),
    ] = None,
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
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Seconds for the whole answer.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Say what it took.")] = False,
) -> None:
    """Continue a text, printing the answer as it comes."""
    if prompt == "-":
        prompt = sys.stdin.read()
    if threshold is not None and escalation_rate is not None:
        raise typer.BadParameter("goes without --escalation-rate", param_hint="--threshold")
    judged = (scorer, threshold, escalation_rate)
    kept = Filter(*judged) if judged != ("", None, None) else None
    options = _options(option or ())

    async def work() -> int:
        async with Client(*target) as client:
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
                timeout_s=timeout,
                **options,
            )
            if json_:
                await stream.text()
                typer.echo(json.dumps(_as_json(stream.result)))
            else:
                await _print(stream)
                if stats:
                    typer.echo(_in_words(stream.result), err=True)
        return 0

    run(work())


def models(
    target: Target = [DEFAULT_TARGET],  # noqa: B006 - typer copies it
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """List the models served, their drafters and strategies."""

    async def work() -> int:
        async with Client(*target) as client:
            served = await client.list_models()
        if json_:
            typer.echo(json.dumps([asdict(each) for each in served]))
            return 0
        for each in served:
            typer.echo(f"{_describe(each.target)}, {each.num_verifiers} verifier(s)")
            for drafter in each.drafters:
                typer.echo(f"  drafter     {_describe(drafter)}")
            typer.echo(f"  strategies  {', '.join(each.strategies)}")
            lookahead = each.default_lookahead or "what suits the strategy"
            typer.echo(f"  default     {each.default_strategy}, lookahead {lookahead}")
        return 0

    run(work())


def _options(given: Iterable[str]) -> dict[str, Any]:
    """The values of ``NAME=VALUE``, by their names. Raises BadParameter."""
    options: dict[str, Any] = {}
    for each in given:
        name, _, text = each.partition("=")
        try:
            options[name] = read_option(name, text)
        except (TypeError, ValueError) as error:
            raise typer.BadParameter(str(error), param_hint="--option") from None
    return options


async def _print(stream: GenerationStream) -> None:
    async for chunk in stream:
        typer.echo(chunk.text, nl=False)
    typer.echo()


def _as_json(result: GenerationResult) -> dict[str, Any]:
    return {**asdict(result), "acceptance": result.stats.acceptance}


def _in_words(result: GenerationResult) -> str:
    stats = result.stats
    speed = stats.num_output_tokens / stats.duration_ms * 1000 if stats.duration_ms else 0.0
    words = [
        f"{stats.num_output_tokens} tokens in {stats.duration_ms:.0f} ms ({speed:.1f} tokens/s)",
        f"first after {stats.time_to_first_token_ms:.0f} ms",
        f"{result.strategy}, seed {result.seed}",
        f"{stats.num_verify_calls} verify calls",
    ]
    if stats.acceptance is not None:
        words.append(f"acceptance {stats.acceptance:.0%}")
    if stats.num_unchecked_tokens:
        words.append(f"{stats.num_unchecked_tokens} tokens not checked by the target")
    return "; ".join((*words, f"ended by {result.finish_reason.replace('_', ' ')}"))


def _describe(model: Model) -> str:
    size = f"{model.num_parameters / 1e6:.1f} M parameters" if model.num_parameters else ""
    digest = f"digest {model.weights_digest[:12]}" if model.weights_digest else ""
    words = filter(None, (size, model.backend, model.dtype, digest))
    return f"{model.name} ({', '.join(words)})"
