"""``specmesh generate``, which prints an answer in one of several forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from specmesh.cli.answers.input import read_input
from specmesh.cli.answers.options import RequestOptions
from specmesh.cli.answers.output import Form, cut_off, in_words, is_cut_off, write
from specmesh.cli.answers.request import SPECULATION, named
from specmesh.cli.answers.waiting import Waiting
from specmesh.cli.connection import Credentials, Targets
from specmesh.cli.runner import run
from specmesh.client import AsyncClient, Filter, ServedModel, SpecmeshError
from specmesh.client.connections.addresses import DEFAULT_TARGET

_OUTPUT = "Output"
"""A group of options in the help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenFilter:
    """Options of strategy ``filter``."""

    scorer: Annotated[
        str,
        typer.Option(
            help="Score draft tokens by this scorer, with strategy filter.",
            rich_help_panel=SPECULATION,
        ),
    ] = ""
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Keep draft tokens with a score above this without verifying them, with strategy "
            "filter.",
            rich_help_panel=SPECULATION,
        ),
    ] = None
    escalation_rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Verify this share of all sessions' draft tokens, with strategy filter; excludes "
            "--threshold.",
            rich_help_panel=SPECULATION,
        ),
    ] = None

    @property
    def filter(self) -> Filter | None:
        """The filter of the request; None if no option is given. Raises BadParameter."""
        if self.threshold is not None and self.escalation_rate is not None:
            raise typer.BadParameter("excludes --escalation-rate", param_hint="--threshold")
        given = (self.scorer, self.threshold, self.escalation_rate)
        return Filter(*given) if given != ("", None, None) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """The form in which an answer is printed, and what is printed with it."""

    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=_OUTPUT)
    ] = False
    ndjson: Annotated[
        bool,
        typer.Option(
            "--ndjson",
            help="Print one JSON object per line: each chunk, then the result.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False
    logprobs: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=20,
            help="Add the log-probabilities of each token and of this many likeliest ones to "
            "--json or --ndjson.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None
    show_speculation: Annotated[
        bool,
        typer.Option(
            "--show-speculation",
            help="Colour or mark each token by its origin, such as drafted or recovered.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False
    stats: Annotated[
        bool,
        typer.Option("--stats", help="Print statistics of the answer.", rich_help_panel=_OUTPUT),
    ] = False

    @property
    def form(self) -> Form:
        """The form of the answer. Raises BadParameter."""
        if self.logprobs is not None and not (self.json_ or self.ndjson):
            raise typer.BadParameter("requires --json or --ndjson", param_hint="--logprobs")
        forms = {
            Form.JSON: self.json_,
            Form.NDJSON: self.ndjson,
            Form.SPECULATION: self.show_speculation,
        }
        wanted = [form for form, is_wanted in forms.items() if is_wanted]
        if len(wanted) > 1:
            raise typer.BadParameter("--json, --ndjson and --show-speculation exclude each other")
        return wanted[0] if wanted else Form.TEXT


def generate(
    prompt: Annotated[
        str, typer.Argument(help="Continue this text; '-' reads it from standard input.")
    ],
    target: Targets = [DEFAULT_TARGET],  # noqa: B006 - typer copies it
    *,
    request: RequestOptions,
    given: GivenFilter,
    request_id: Annotated[
        str, typer.Option(help="Continue the answer that was begun under this id, if any.")
    ] = "",
    output: OutputOptions,
    credentials: Credentials,
) -> None:
    """Continue a text and print the answer as it arrives."""
    text = read_input() if prompt == "-" else prompt
    form = output.form
    options = {
        **request.arguments,
        "filter": given.filter,
        "num_top_logprobs": output.logprobs,
        "request_id": request_id,
    }
    connection = credentials.client_options(target)
    as_json = form in {Form.JSON, Form.NDJSON}

    async def work() -> int:
        waiting = Waiting()
        async with AsyncClient(*target, hooks=waiting.hooks, **connection) as client:
            if request.option:
                request.check(await client.list_models())
            stream = client.generate(text, **options)
            await write(stream, form, waiting)
            result = stream.result
            if not as_json and is_cut_off(result, options["max_tokens"]):
                typer.echo(cut_off(result, await served_as(client, result.model)), err=True)
            if output.stats:
                has_drafter = None
                if not result.stats.num_drafted_tokens:
                    model = await served_as(client, result.model)
                    has_drafter = None if model is None else bool(model.drafters)
                typer.echo(in_words(result, has_drafter), err=True)
        return 0

    run(work(), json_errors=as_json, targets=target, tls=connection["tls"])


async def served_as(client: AsyncClient, name: str) -> ServedModel | None:
    """Return the model that the mesh serves under ``name`` now; None if it has none or can't be
    asked."""
    try:
        served = await client.list_models()
    except SpecmeshError:
        return None
    return named(served, name)
