"""The options that all commands that generate load share."""

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
_ARRIVALS = "Arrivals"
_REQUESTS = "Requests"
_EXTENT = "Duration"
_FINDINGS = "Results"

_MAX_SEED = 2**53 - 1


P = TypeVar("P")


def parsed_by(parse: Callable[[str], P]) -> Callable[[str | P], P]:
    """Wrap ``parse`` for an option, so that the user reads the message of its ValueError.

    Values other than strings, which are defaults, pass unchanged.
    """

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
    """The options as the user gave them; ``asked.py`` makes a plan of them."""

    target: Targets
    openai: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Load an OpenAI-compatible server instead, such as http://127.0.0.1:8000/v1.",
            rich_help_panel=_SERVER,
        ),
    ] = ""
    chat: Annotated[
        bool,
        typer.Option(
            "--chat", help="Send chats instead of plain prompts.", rich_help_panel=_SERVER
        ),
    ] = False
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="With --openai: omit a parameter that the server refuses, one of "
            f"{', '.join(OPTIONAL)}. May be repeated.",
            rich_help_panel=_SERVER,
        ),
    ] = None
    rename: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=OTHER",
            help="With --openai: send one of these parameters under another name, such as "
            "max_tokens=max_completion_tokens. May be repeated.",
            rich_help_panel=_SERVER,
        ),
    ] = None
    model: Annotated[
        str,
        typer.Option(
            help="Model name; default: the first that the server lists.", rich_help_panel=_SERVER
        ),
    ] = ""
    retries: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of times the SDK retries to start an answer that was refused.",
            rich_help_panel=_SERVER,
        ),
    ] = 0
    metrics: Annotated[
        str,
        typer.Option(
            metavar="ADDR,...",
            help="Addresses (host:port) whose /metrics to scrape, to report the CPU time and "
            "queues of the servers.",
            rich_help_panel=_SERVER,
        ),
    ] = ""
    tls_ca: TlsCa = None
    tls_cert: TlsCert = None
    tls_key: TlsKey = None
    token_file: TokenPath = None

    arrivals: Annotated[
        ArrivalPattern,
        typer.Option(help="Arrival process of an open loop.", rich_help_panel=_ARRIVALS),
    ] = ArrivalPattern.POISSON
    burstiness: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=100,
            help="With --arrivals gamma: coefficient of variation of the gaps; 1 is Poisson.",
            rich_help_panel=_ARRIVALS,
        ),
    ] = 2.0
    ramp_to: Annotated[
        float | None,
        typer.Option(
            min=1e-6, help="With --arrivals ramp: the final rate.", rich_help_panel=_ARRIVALS
        ),
    ] = None
    trace: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Replay the arrival times, lengths and shared prefixes of a recording: Azure's "
            "CSV or Mooncake's JSON lines.",
            rich_help_panel=_ARRIVALS,
        ),
    ] = None
    speed: Annotated[
        float,
        typer.Option(min=1e-6, help="With --trace: speed-up factor.", rich_help_panel=_ARRIVALS),
    ] = 1.0
    users: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Closed loop: number of users; each waits for an answer, thinks, and asks again.",
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
            help="File of prompts: .jsonl, .json such as ShareGPT's, or text with one per line.",
            rich_help_panel=_REQUESTS,
        ),
    ] = None
    prompt_tokens: Annotated[
        Any,
        _length(
            f"Length of random prompts, used without --prompts: {lengths.FORMS}.",
            _REQUESTS,
            "--prompt-tokens",
            "128",
        ),
    ] = lengths.ConstantLength(128)  # noqa: RUF009 - it is frozen
    prefix_groups: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of prefixes; each random prompt begins with one of them.",
            rich_help_panel=_REQUESTS,
        ),
    ] = 0
    prefix_tokens: Annotated[
        int, typer.Option(min=1, help="Length of each prefix.", rich_help_panel=_REQUESTS)
    ] = 256
    turns: Annotated[
        Any, _length("Turns of each random conversation.", _REQUESTS, "--turns", "1")
    ] = lengths.ConstantLength(1)  # noqa: RUF009 - it is frozen
    output_tokens: Annotated[
        Any,
        _length(
            "Length limit of answers whose prompt sets none.", _REQUESTS, "--output-tokens", "64"
        ),
    ] = lengths.ConstantLength(64)  # noqa: RUF009 - it is frozen
    ignore_end: Annotated[
        bool,
        typer.Option(
            "--ignore-end",
            help="Generate up to the limit, past the end of text.",
            rich_help_panel=_REQUESTS,
        ),
    ] = False
    strategy: Annotated[
        str,
        typer.Option(help="Decoding strategy; see 'specmesh models'.", rich_help_panel=_REQUESTS),
    ] = ""
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help=f"Set one of {', '.join((*SAMPLING, *STRATEGY_OPTIONS))}. May be repeated.",
            rich_help_panel=_REQUESTS,
        ),
    ] = None
    mix: Annotated[
        list[Any] | None,
        typer.Option(
            parser=parsed_by(variation),
            metavar="'WEIGHT NAME=VALUE...'",
            help="Mix several kinds of requests by weight: --mix '3 strategy=dsi' --mix '1 "
            "strategy=autoregressive temperature=0.8'.",
            rich_help_panel=_REQUESTS,
        ),
    ] = None
    cancel: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Share of the requests to cancel.",
            rich_help_panel=_REQUESTS,
        ),
    ] = 0.0
    cancel_after: Annotated[
        Any,
        _length(
            "Number of tokens after which to cancel.", _REQUESTS, "--cancel-after", "uniform:1-32"
        ),
    ] = lengths.Uniform(1, 32)  # noqa: RUF009 - it is frozen
    timeout: Annotated[
        float,
        _time("Deadline of each request, from when it is due.", _REQUESTS, "--timeout", "60s"),
    ] = 60.0
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            max=_MAX_SEED,
            help="Equal seeds send equal requests at equal times.",
            rich_help_panel=_REQUESTS,
        ),
    ] = 0

    warm_up: Annotated[
        float, _time("Load before the measured time, not counted.", _EXTENT, "--warm-up", "0s")
    ] = 0.0
    duration: Annotated[
        float | None,
        _time(
            "Measured time.",
            _EXTENT,
            "--duration",
            "30s; with --requests or --trace, until all are answered",
        ),
    ] = None
    cool_down: Annotated[
        float,
        _time(
            "Load after the measured time, kept up while its last answers end.",
            _EXTENT,
            "--cool-down",
            "0s",
        ),
    ] = 0.0
    requests: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of conversations.", rich_help_panel=_EXTENT),
    ] = None
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            help="Generator processes; each sends about 1,500 requests/s.",
            rich_help_panel=_EXTENT,
        ),
    ] = 1

    slo: Annotated[
        Any,
        typer.Option(
            parser=parsed_by(objectives),
            metavar="ttft=TIME,tpot=TIME,e2e=TIME",
            help="Objectives (one or more) for each request, such as ttft=200ms,tpot=50ms.",
            rich_help_panel=_FINDINGS,
        ),
    ] = None
    trace_slowest: Annotated[
        int,
        typer.Option(
            min=0,
            help="Trace requests, and list this many of the slowest and of the failed ones.",
            rich_help_panel=_FINDINGS,
        ),
    ] = 0
    json_: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE|-",
            help="Write the report as JSON (described in docs/load.md).",
            rich_help_panel=_FINDINGS,
        ),
    ] = None
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the report as an HTML page with charts, which needs no network.",
            rich_help_panel=_FINDINGS,
        ),
    ] = None

    @property
    def objectives(self) -> Objectives | None:
        """Return the value of ``--slo``."""
        found: Objectives | None = self.slo
        return found

    @property
    def mixed(self) -> list[Variation]:
        """Return the values of ``--mix``."""
        return self.mix or []


def with_load_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command``, whose first parameter is ``LoadOptions``, an option for each of its fields.

    They follow the first option of the command's own, which is the one that matters most, and
    precede its others.
    """
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
    """Return whether an option is on the command line itself.

    Defaults and environment variables do not count: the latter apply to all commands.
    """
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
