"""The conversion of command-line options into a run plan, with their validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import typer

from specmesh.client import TokenFile
from specmesh.client.connections.credentials import is_loopback
from specmesh.load.commands.options import LoadOptions
from specmesh.load.commands.pattern import ArrivalPattern
from specmesh.load.commands.request_options import LoadRequestOptions
from specmesh.load.runs.conduct import RunPlan
from specmesh.load.transports.mesh_transport import MeshDoor
from specmesh.load.transports.openai_parameters import OPTIONAL, SENT
from specmesh.load.transports.openai_transport import OpenAiDoor
from specmesh.load.transports.transport import ServerAddress
from specmesh.load.workload.arrivals import (
    Arrivals,
    ConstantArrivals,
    Gamma,
    Poisson,
    Ramp,
    ReplayedArrivals,
    Users,
)
from specmesh.load.workload.conversations import Conversations, Listed, RecordedPrompts, Synthetic
from specmesh.load.workload.plan import RunLength, Workload
from specmesh.load.workload.prompt_files import read_prompts
from specmesh.load.workload.trace_files import TraceEntry, read_trace
from specmesh.load.workload.variations import Variation
from specmesh.serving.telemetry.exporters import InvalidTelemetry, check_environment

DEFAULT_DURATION_S = 30.0

R = TypeVar("R")


def plan_of(asked: LoadOptions, rate: float | None) -> RunPlan:
    """Return the run that ``asked`` describes, at ``rate`` conversations per second. Raises
    BadParameter."""
    requests, trace = asked.requests, asked.arrivals.trace
    entries = None if trace is None else _read(read_trace, trace, "--trace")
    if asked.results.trace_slowest:
        try:
            check_environment()
        except InvalidTelemetry as error:
            raise typer.BadParameter(str(error), param_hint="--trace-slowest") from None
    workload = Workload(
        arrivals=_arrivals(asked, rate, entries),
        conversations=_conversations(asked, entries),
        extent=_extent(asked),
        variations=_variations(requests),
        output_tokens=requests.output_tokens,
        ignore_end=requests.ignore_end,
        think_s=asked.arrivals.think,
        cancelled_share=requests.cancel,
        cancelled_after=requests.cancel_after if requests.cancel else None,
        timeout_s=requests.timeout,
        seed=requests.seed,
    )
    return RunPlan(
        workload=workload,
        door=_door(asked),
        processes=asked.extent.processes,
        objectives=asked.results.objectives,
        metrics=tuple(each for each in asked.server.metrics.split(",") if each),
        num_slowest=asked.results.trace_slowest,
    )


def arrivals_at(asked: LoadOptions, rate: float) -> Arrivals | Users:
    """Return the arrivals of one run of a sweep or a search, whose plan is otherwise that of the
    others."""
    return _arrivals(asked, rate, None)


def _arrivals(
    asked: LoadOptions, rate: float | None, entries: tuple[TraceEntry, ...] | None
) -> Arrivals | Users:
    wanted = asked.arrivals
    named = {"--rate": rate, "--users": wanted.users, "--trace": entries}
    given = [name for name, value in named.items() if value is not None]
    if len(given) != 1:
        raise typer.BadParameter(
            "give exactly one of --rate (open loop), --users (closed loop) and --trace (replay)"
            + (f", not {' and '.join(given)}" if given else "")
        )
    if entries is not None:
        return ReplayedArrivals(tuple(entry.at_s for entry in entries), wanted.speed)
    if wanted.users is not None:
        return Users(wanted.users, wanted.think)
    assert rate is not None
    match wanted.arrivals:
        case ArrivalPattern.CONSTANT:
            return ConstantArrivals(rate)
        case ArrivalPattern.GAMMA:
            return Gamma(rate, wanted.burstiness)
        case ArrivalPattern.RAMP:
            if wanted.ramp_to is None:
                raise typer.BadParameter("it requires --ramp-to", param_hint="--arrivals ramp")
            total_s = _extent(asked).total_s
            return Ramp(rate, wanted.ramp_to, DEFAULT_DURATION_S if total_s is None else total_s)
        case ArrivalPattern.POISSON:
            return Poisson(rate)


def _conversations(asked: LoadOptions, entries: tuple[TraceEntry, ...] | None) -> Conversations:
    requests, arrivals = asked.requests, asked.arrivals
    if requests.prompts is not None:
        listed = _read(read_prompts, requests.prompts, "--prompts")
        left_out = sum(each.num_left_out for each in listed)
        left_out += 0 if asked.server.chat else sum(len(each.system) for each in listed)
        if left_out:
            typer.echo(
                f"specmesh: {left_out} of the system's messages in {requests.prompts} are left "
                "out: only --chat sends them, where they begin a conversation",
                err=True,
            )
        one_turn = all(len(each.turns) == 1 for each in listed)
        if arrivals.think and arrivals.users is None and one_turn:
            raise typer.BadParameter(
                f"it requires --users: no conversation in {requests.prompts} has several turns",
                param_hint="--think",
            )
        return Listed(listed)
    if entries is not None:
        return RecordedPrompts(entries)
    return Synthetic(
        prompt_tokens=requests.prompt_tokens,
        turns=requests.turns,
        prefix_groups=requests.prefix_groups,
        prefix_tokens=requests.prefix_tokens if requests.prefix_groups else 0,
    )


def _extent(asked: LoadOptions) -> RunLength:
    extent = asked.extent
    duration_s = extent.duration
    if duration_s is None and extent.requests is None and asked.arrivals.trace is None:
        duration_s = DEFAULT_DURATION_S
    return RunLength(
        warm_up_s=extent.warm_up,
        duration_s=duration_s,
        cool_down_s=extent.cool_down,
        max_conversations=extent.requests,
    )


def _variations(requests: LoadRequestOptions) -> tuple[Variation, ...]:
    if requests.mixed:
        if requests.strategy or requests.option:
            raise typer.BadParameter("it excludes --strategy and -o", param_hint="--mix")
        return tuple(requests.mixed)
    one = Variation(strategy=requests.strategy)
    for each in requests.option or ():
        name, _, text = each.partition("=")
        try:
            one = one.having(name, text)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--option") from None
    return (one,)


def _door(asked: LoadOptions) -> ServerAddress:
    server, credentials = asked.server, asked.credentials
    if not server.openai:
        return MeshDoor(
            targets=tuple(asked.target),
            model=server.model,
            chat=server.chat,
            max_retries=server.retries,
            connection=credentials.client_options(asked.target),
        )
    parts = urlsplit(server.openai)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise typer.BadParameter(
            f"{server.openai!r} is not an http:// or https:// URL", param_hint="--openai"
        )
    found = credentials.token()
    token = found() if isinstance(found, TokenFile) else found
    if token and parts.scheme == "http" and not is_loopback(f"{parts.hostname}:80"):
        raise typer.BadParameter("a token is never sent in clear text: use https://")
    return OpenAiDoor(
        server.openai,
        server.model,
        server.chat,
        token,
        credentials.tls_ca,
        frozenset(_optional(name, "--leave-out") for name in server.leave_out or ()),
        _renamed(server.rename or ()),
    )


def _optional(name: str, option: str) -> str:
    if name not in OPTIONAL:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(OPTIONAL)}", param_hint=option)
    return name


def _renamed(renamings: Sequence[str]) -> dict[str, str]:
    hint = "--rename"
    found: dict[str, str] = {}
    for each in renamings:
        name, _, other = each.partition("=")
        if not other:
            raise typer.BadParameter(f"{each!r} is not NAME=OTHER", param_hint=hint)
        if other in SENT or other in found.values():
            raise typer.BadParameter(f"{other!r} is the name of another parameter", param_hint=hint)
        if name in found:
            raise typer.BadParameter(f"{name!r} is given two names", param_hint=hint)
        found[_optional(name, hint)] = other
    return found


def _read(read: Callable[[Path], R], file: Path, option: str) -> R:
    try:
        return read(file)
    except (OSError, TypeError, ValueError) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint=option) from None
