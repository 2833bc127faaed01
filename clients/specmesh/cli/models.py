"""``specmesh models``, which lists the served models, and its subcommands for model files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated

import typer

from specmesh.cli.connection import Credentials, Targets
from specmesh.cli.model_files.commands import fetch, sums, verify
from specmesh.cli.runner import run
from specmesh.client import AsyncClient, Model, ServedModel, Strategy
from specmesh.client.connections.addresses import DEFAULT_TARGET
from specmesh.serving.process.typer_app import App

app = App(
    name="models",
)
app.command()(fetch)
app.command()(verify)
app.command()(sums)


@app.callback(invoke_without_command=True)
def models(
    context: typer.Context,
    target: Targets = [DEFAULT_TARGET],  # noqa: B006 - typer copies it
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
    *,
    credentials: Credentials,
) -> None:
    """List the served models, their drafters and strategies; or fetch and verify model files."""
    if context.invoked_subcommand is not None:
        return
    connection = credentials.client_options(target)

    async def work() -> int:
        async with AsyncClient(*target, **connection) as client:
            served = await client.list_models()
        if json_:
            typer.echo(json.dumps([asdict(each) for each in served]))
        else:
            for each in served:
                typer.echo("\n".join(_lines(each)))
        return 0

    run(work(), json_errors=json_, targets=target, tls=connection["tls"])


def _lines(served: ServedModel) -> Iterable[str]:
    replicas = "verifier" if served.num_verifiers == 1 else "verifiers"
    yield f"{_describe(served.target)}, {served.num_verifiers} {replicas}"
    for drafter in served.drafters:
        yield f"  drafter     {_describe(drafter)}"
    yield f"  strategies  {_list(served.strategies)}"
    yield f"  default     {_default(served)}"
    yield f"  chat        {'by its template' if served.has_chat_template else 'no template'}"


def _default(served: ServedModel) -> str:
    """Return the strategy of requests that name none, and the lookahead if it takes one."""
    name = served.default_strategy
    if not any(each.name == name and "lookahead" in each.options for each in served.strategies):
        return name
    return f"{name}, lookahead {served.default_lookahead or 'chosen by the strategy'}"


def _list(strategies: Iterable[Strategy]) -> str:
    """Return their names, with parentheses around those that are not available now."""
    return ", ".join(each.name if each.available else f"({each.name})" for each in strategies)


def _describe(model: Model) -> str:
    size = f"{model.num_parameters / 1e6:.1f} M parameters" if model.num_parameters else ""
    digest = f"digest {model.weights_digest[:12]}" if model.weights_digest else ""
    words = filter(None, (size, model.backend, model.dtype, digest))
    return f"{model.name} ({', '.join(words)})"
