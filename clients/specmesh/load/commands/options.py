"""The options that all commands that generate load share, as the user gave them; ``asked.py`` makes
a plan of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from specmesh.cli.connection import Credentials, Targets
from specmesh.client.connections.addresses import DEFAULT_TARGET
from specmesh.load.commands.parsing import finite_rate, parsed_by, positive_time_option, time_option
from specmesh.load.commands.pattern import ArrivalPattern
from specmesh.load.commands.request_options import LoadRequestOptions
from specmesh.load.results.objectives import Objectives, objectives
from specmesh.load.transports.openai_parameters import OPTIONAL


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The server to load, and how to call it."""

    help_panel: ClassVar = "Server"

    openai: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Load an OpenAI-compatible server instead, such as http://127.0.0.1:8000/v1.",
        ),
    ] = ""
    chat: Annotated[bool, typer.Option("--chat", help="Send chats instead of plain prompts.")] = (
        False
    )
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="With --openai: omit a parameter that the server refuses, one of "
            f"{', '.join(OPTIONAL)}. May be repeated.",
        ),
    ] = None
    rename: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=OTHER",
            help="With --openai: send one of these parameters under another name, such as "
            "max_tokens=max_completion_tokens. May be repeated.",
        ),
    ] = None
    model: Annotated[
        str, typer.Option(help="Model name; default: the first that the server lists.")
    ] = ""
    retries: Annotated[
        int,
        typer.Option(
            min=0, help="Number of times the SDK retries to start an answer that was refused."
        ),
    ] = 0
    metrics: Annotated[
        str,
        typer.Option(
            metavar="ADDR,...",
            help="Addresses (host:port) whose /metrics to scrape, to report the CPU time and "
            "queues of the servers.",
        ),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalOptions:
    """The times at which requests arrive."""

    help_panel: ClassVar = "Arrivals"

    arrivals: Annotated[ArrivalPattern, typer.Option(help="Arrival process of an open loop.")] = (
        ArrivalPattern.POISSON
    )
    burstiness: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=100,
            help="With --arrivals gamma: coefficient of variation of the gaps; 1 is Poisson.",
        ),
    ] = 2.0
    ramp_to: Annotated[
        float | None,
        typer.Option(min=1e-6, callback=finite_rate, help="With --arrivals ramp: the final rate."),
    ] = None
    trace: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Replay the arrival times, lengths and shared prefixes of a recording: Azure's "
            "CSV or Mooncake's JSON lines.",
        ),
    ] = None
    speed: Annotated[
        float,
        typer.Option(min=1e-6, callback=finite_rate, help="With --trace: speed-up factor."),
    ] = 1.0
    users: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Closed loop: number of users; each waits for an answer, thinks, and asks again.",
        ),
    ] = None
    think: Annotated[
        float, time_option("0s", "Mean pause of a user, or between turns of a conversation.")
    ] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtentOptions:
    """The length of a run, and the processes that generate its load."""

    help_panel: ClassVar = "Duration"

    warm_up: Annotated[float, time_option("0s", "Load before the measured time, not counted.")] = (
        0.0
    )
    duration: Annotated[
        float | None,
        positive_time_option(
            "30s; with --requests or --trace, until all are answered", "Measured time."
        ),
    ] = None
    cool_down: Annotated[
        float,
        time_option("0s", "Load after the measured time, kept up while its last answers end."),
    ] = 0.0
    requests: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of conversations.")
    ] = None
    processes: Annotated[
        int, typer.Option(min=1, help="Generator processes; each sends about 1,500 requests/s.")
    ] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultOptions:
    """The contents of the report, and the files that it is written to."""

    help_panel: ClassVar = "Results"

    slo: Annotated[
        Any,
        typer.Option(
            parser=parsed_by(objectives),
            metavar="ttft=TIME,tpot=TIME,e2e=TIME",
            help="Objectives (one or more) for each request, such as ttft=200ms,tpot=50ms.",
        ),
    ] = None
    trace_slowest: Annotated[
        int,
        typer.Option(
            min=0, help="Trace requests, and list this many of the slowest and of the failed ones."
        ),
    ] = 0
    json_: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="FILE|-", help="Write the report as JSON (described in docs/load.md)."
        ),
    ] = None
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the report as an HTML page with charts, which needs no network.",
        ),
    ] = None

    @property
    def objectives(self) -> Objectives | None:
        """Return the value of ``--slo``."""
        found: Objectives | None = self.slo
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """All options that the commands share."""

    target: Targets = field(default_factory=lambda: [DEFAULT_TARGET])
    server: ServerOptions
    credentials: Credentials
    arrivals: ArrivalOptions
    requests: LoadRequestOptions
    extent: ExtentOptions
    results: ResultOptions
