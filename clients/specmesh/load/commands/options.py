"""The options of all commands that make load, declared once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from specmesh.cli.connection import Targets, TlsCa, TlsCert, TlsKey, TokenPath
from specmesh.client.connections.addresses import DEFAULT_TARGET
from specmesh.client.requests.speculation import STRATEGY_OPTIONS
from specmesh.load.commands.inapplicable import refuse_inapplicable
from specmesh.load.commands.pattern import ArrivalPattern
from specmesh.load.results.objectives import Objectives, objectives
from specmesh.load.transports.openai_parameters import OPTIONAL
from specmesh.load.workload import durations, lengths
from specmesh.load.workload.variations import SAMPLING, Variation, variation

_SERVER = "Server"
_ARRIVALS = "When"
_REQUESTS = "What"
_EXTENT = "How long"
_FINDINGS = "Findings"

_MAX_SEED = 2**53 - 1


P = TypeVar("P")


def parsed_by(parse: Callable[[str], P]) -> Callable[[str | P], P]:
    """``parse`` for an option: its ValueError is what the user reads. A default, which is what
    ``parse`` returns, stays as it is."""

    def wrapped(given: str | P) -> P:
        try:
            return parse(given) if isinstance(given, str) else given
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return wrapped


def _time(help_: str, panel: str, name: str, shown: str) -> Any:
    return typer.Option(
        name,
        parser=parsed_by(durations.seconds),
        metavar="TIME",
        help=help_,
        show_default=shown,
        rich_help_panel=panel,
    )


def _length(help_: str, panel: str, name: str, shown: str) -> Any:
    return typer.Option(
        name,
        parser=parsed_by(lengths.length),
        metavar="LENGTH",
        help=help_,
        show_default=shown,
        rich_help_panel=panel,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What the user asks for, as it was written; ``asked.py`` makes a plan of it."""

    target: Targets
    openai: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="A server of OpenAI's API instead, such as http://127.0.0.1:8000/v1.",
            rich_help_panel=_SERVER,
        ),
    ] = ""
    chat: Annotated[
        bool,
        typer.Option("--chat", help="Send chats, not texts.", rich_help_panel=_SERVER),
    ] = False
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Of --openai: a parameter that the server refuses, of {', '.join(OPTIONAL)}. "
            "Repeat it for several.",
            rich_help_panel=_SERVER,
        ),
    ] = None
    rename: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=OTHER",
            help="Of --openai: what the server calls one of them, such as "
            "max_tokens=max_completion_tokens. Repeat it for several.",
            rich_help_panel=_SERVER,
        ),
    ] = None
    model: Annotated[
        str,
        typer.Option(
            help="Its name; default: the first that the server names.", rich_help_panel=_SERVER
        ),
    ] = ""
    retries: Annotated[
        int,
        typer.Option(
            min=0,
            help="How often the SDK tries again to start an answer that was refused.",
            rich_help_panel=_SERVER,
        ),
    ] = 0
    metrics: Annotated[
        str,
        typer.Option(
            metavar="ADDR,...",
            help="Where servers have /metrics, host:port: their processor time and queues go into "
            "the report.",
            rich_help_panel=_SERVER,
        ),
    ] = ""
    tls_ca: TlsCa = None
    tls_cert: TlsCert = None
    tls_key: TlsKey = None
    token_file: TokenPath = None

    arrivals: Annotated[
        ArrivalPattern,
        typer.Option(
            help="How an open loop's conversations are spaced.", rich_help_panel=_ARRIVALS
        ),
    ] = ArrivalPattern.POISSON
    burstiness: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=100,
            help="Of --arrivals gamma: coefficient of variation of the gaps; 1 is Poisson.",
            rich_help_panel=_ARRIVALS,
        ),
    ] = 2.0
    ramp_to: Annotated[
        float | None,
        typer.Option(
            min=1e-6, help="Of --arrivals ramp: the rate at its end.", rich_help_panel=_ARRIVALS
        ),
    ] = None
    trace: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Replay a recording: Azure's CSV or Mooncake's JSON lines; times, lengths and "
            "shared prefixes are its own.",
            rich_help_panel=_ARRIVALS,
        ),
    ] = None
    speed: Annotated[
        float,
        typer.Option(min=1e-6, help="Of --trace: how much faster.", rich_help_panel=_ARRIVALS),
    ] = 1.0
    users: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Closed loop: so many, each of whom waits for an answer, thinks, and asks again.",
            rich_help_panel=_ARRIVALS,
        ),
    ] = None
    think: Annotated[
        float,
        _time(
            "Mean pause of a user, or between turns of a conversation.", _ARRIVALS, "--think", "0s"
        ),
    ] = 0.0

    prompts: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="File with prompts: .jsonl, .json such as ShareGPT's, or a text, one a line.",
            rich_help_panel=_REQUESTS,
        ),
    ] = None
    prompt_tokens: Annotated[
        Any,
        _length(
            f"Of random prompts, without --prompts: {lengths.FORMS}.",
            _REQUESTS,
            "--prompt-tokens",
            "128",
        ),
    ] = lengths.ConstantLength(128)  # noqa: RUF009 - it is frozen
    prefix_groups: Annotated[
        int,
        typer.Option(
            min=0,
            help="Each random prompt begins with one of so many prefixes.",
            rich_help_panel=_REQUESTS,
        ),
    ] = 0
    prefix_tokens: Annotated[
        int, typer.Option(min=1, help="Of each prefix.", rich_help_panel=_REQUESTS)
    ] = 256
    turns: Annotated[
        Any, _length("Of each conversation of random prompts.", _REQUESTS, "--turns", "1")
    ] = lengths.ConstantLength(1)  # noqa: RUF009 - it is frozen
    output_tokens: Annotated[
        Any,
        _length(
            "Limit of answers for which the prompt sets none.", _REQUESTS, "--output-tokens", "64"
        ),
    ] = lengths.ConstantLength(64)  # noqa: RUF009 - it is frozen
    ignore_end: Annotated[
        bool,
        typer.Option(
            "--ignore-end", help="Let answers go on to their limit.", rich_help_panel=_REQUESTS
        ),
    ] = False
    strategy: Annotated[
        str, typer.Option(help="See 'specmesh models'.", rich_help_panel=_REQUESTS)
    ] = ""
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help=f"One of {', '.join((*SAMPLING, *STRATEGY_OPTIONS))}. Repeat it for several.",
            rich_help_panel=_REQUESTS,
        ),
    ] = None
    mix: Annotated[
        list[Any] | None,
        typer.Option(
            parser=parsed_by(variation),
            metavar="'WEIGHT NAME=VALUE...'",
            help="Several kinds of requests by weight: --mix '3 strategy=dsi' --mix '1 "
            "strategy=autoregressive temperature=0.8'.",
            rich_help_panel=_REQUESTS,
        ),
    ] = None
    cancel: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Share of requests that are cancelled.",
            rich_help_panel=_REQUESTS,
        ),
    ] = 0.0
    cancel_after: Annotated[
        Any, _length("Tokens after which they are.", _REQUESTS, "--cancel-after", "uniform:1-32")
    ] = lengths.Uniform(1, 32)  # noqa: RUF009 - it is frozen
    timeout: Annotated[
        float, _time("Of each request, from when it is due.", _REQUESTS, "--timeout", "60s")
    ] = 60.0
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            max=_MAX_SEED,
            help="Equal seeds send the same at the same times.",
            rich_help_panel=_REQUESTS,
        ),
    ] = 0

    warm_up: Annotated[
        float, _time("Load before the measured time; not counted.", _EXTENT, "--warm-up", "0s")
    ] = 0.0
    duration: Annotated[
        float | None,
        _time(
            "The measured time.",
            _EXTENT,
            "--duration",
            "30s; with --requests or --trace until all are answered",
        ),
    ] = None
    cool_down: Annotated[
        float,
        _time(
            "Load after the measured time, while its last answers end.",
            _EXTENT,
            "--cool-down",
            "0s",
        ),
    ] = 0.0
    requests: Annotated[
        int | None,
        typer.Option(min=1, help="At most so many conversations in all.", rich_help_panel=_EXTENT),
    ] = None
    processes: Annotated[
        int,
        typer.Option(min=1, help="Generators; each drives some 1,500/s.", rich_help_panel=_EXTENT),
    ] = 1

    slo: Annotated[
        Any,
        typer.Option(
            parser=parsed_by(objectives),
            metavar="ttft=TIME,tpot=TIME,e2e=TIME",
            help="Objectives of each request, one or several: ttft=200ms,tpot=50ms.",
            rich_help_panel=_FINDINGS,
        ),
    ] = None
    trace_slowest: Annotated[
        int,
        typer.Option(
            min=0,
            help="Start traces, and name those of so many of the slowest and the failed requests.",
            rich_help_panel=_FINDINGS,
        ),
    ] = 0
    json_: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE|-",
            help="Write the report, as docs/load.md describes it.",
            rich_help_panel=_FINDINGS,
        ),
    ] = None
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the report as a page with charts, which needs no network.",
            rich_help_panel=_FINDINGS,
        ),
    ] = None

    @property
    def objectives(self) -> Objectives | None:
        """``--slo``."""
        found: Objectives | None = self.slo
        return found

    @property
    def mixed(self) -> list[Variation]:
        """``--mix``."""
        return self.mix or []


def with_load_options(command: Callable[..., None]) -> Callable[..., None]:
    """``command``, whose first parameter is ``LoadOptions``, with an option for each of their
    fields: after the first of its own, for that is the one that matters, and before the others."""
    hints = get_type_hints(LoadOptions, include_extras=True)
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=[DEFAULT_TARGET] if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(LoadOptions)
    ]
    names = {field.name for field in fields(LoadOptions)}

    @functools.wraps(command)
    def called(context: typer.Context, **given: Any) -> None:
        asked = LoadOptions(**{name: value for name, value in given.items() if name in names})
        rest = {name: value for name, value in given.items() if name not in names}
        written = {name for name in given if _is_written(context, name)}
        refuse_inapplicable(asked, written, sets_rates="rate" not in rest)
        command(asked, **rest)

    first, *others = (each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own)
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [context, first, *shared, *others]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def _is_written(context: typer.Context, name: str) -> bool:
    """Whether an option is on the command line itself: neither a default nor a variable of the
    environment, which are for all commands."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
