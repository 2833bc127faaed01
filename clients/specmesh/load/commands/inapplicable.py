"""Options that would have no effect. They are refused, because their user expects one."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from specmesh.load.commands.options import ArrivalOptions, LoadOptions, ServerOptions
from specmesh.load.commands.pattern import ArrivalPattern
from specmesh.load.workload.lengths import ConstantLength
from specmesh.serving.process.options import is_typed


def refuse_inapplicable(context: typer.Context, asked: LoadOptions) -> None:
    """Raise BadParameter for an option on the command line that the other options make ineffective.

    Environment variables do not count, because they apply to all commands.
    """
    # Sweeps and searches choose the rates themselves.
    for name, why in _inapplicable(asked, sets_rates="rate" not in context.params):
        if is_typed(context, name):
            raise typer.BadParameter(why, param_hint=f"--{name.replace('_', '-')}")


def _inapplicable(asked: LoadOptions, *, sets_rates: bool) -> Iterator[tuple[str, str]]:
    """Yield the name and the reason of every option without effect, given or not."""
    yield from _of_the_server(asked.server)
    yield from _of_arrivals(asked.arrivals, sets_rates)
    yield from _of_prompts(asked)
    if not asked.requests.cancel:
        yield "cancel_after", "it requires --cancel"
    ends_alone = asked.extent.requests is not None or asked.arrivals.trace is not None
    if asked.extent.duration is None and ends_alone:
        yield "cool_down", "it requires --duration: otherwise the load ends with the last request"


def _of_the_server(server: ServerOptions) -> Iterator[tuple[str, str]]:
    if server.openai:
        yield "target", "it is the address of a mesh and excludes --openai"
        yield "retries", "the SDK makes them; --openai has none"
        for name in ("tls_cert", "tls_key"):
            yield name, "it is for a mesh and excludes --openai"
        if server.openai.startswith("http://"):
            yield "tls_ca", "it requires an https:// URL"
    else:
        for name in ("leave_out", "rename"):
            yield name, "it requires --openai"


def _of_arrivals(given: ArrivalOptions, sets_rates: bool) -> Iterator[tuple[str, str]]:
    if sets_rates:
        for name in ("users", "trace"):
            yield name, "this command chooses the rates; see 'specmesh load run'"
    if given.users is not None:
        yield "arrivals", "it is for an open loop and excludes --users"
    if given.trace is not None:
        yield "arrivals", "--trace sets the arrivals"
    else:
        yield "speed", "it requires --trace"
    if given.arrivals is not ArrivalPattern.GAMMA:
        yield "burstiness", "it requires --arrivals gamma"
    if given.arrivals is not ArrivalPattern.RAMP:
        yield "ramp_to", "it requires --arrivals ramp"


def _of_prompts(asked: LoadOptions) -> Iterator[tuple[str, str]]:
    requests = asked.requests
    elsewhere = "--prompts" if requests.prompts else "--trace" if asked.arrivals.trace else ""
    if elsewhere:
        for name in ("prompt_tokens", "prefix_groups", "prefix_tokens", "turns"):
            yield name, f"it is for random prompts and excludes {elsewhere}"
    if not requests.prefix_groups:
        yield "prefix_tokens", "it requires --prefix-groups"
    if elsewhere == "--trace":
        yield "output_tokens", "--trace sets the length of answers"
    # A prompt file may hold conversations of several turns; asked.py checks that.
    one_turn = elsewhere == "--trace" or (not elsewhere and requests.turns == ConstantLength(1))
    if asked.arrivals.users is None and one_turn:
        yield "think", "it requires --users or conversations of several turns"
