"""Options that would have no effect. They are refused, because their user expects one."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

import typer

from specmesh.load.commands.pattern import ArrivalPattern
from specmesh.load.workload.lengths import ConstantLength

if TYPE_CHECKING:
    from specmesh.load.commands.options import LoadOptions


def refuse_inapplicable(asked: LoadOptions, written: Set[str], *, sets_rates: bool) -> None:
    """Raise BadParameter for an option that the other options make ineffective.

    ``written`` has the field names of the options on the command line. ``sets_rates`` is set for
    sweeps and searches, which choose the rates themselves.
    """
    for name, why in _inapplicable(asked, sets_rates):
        if name in written:
            raise typer.BadParameter(why, param_hint=f"--{name.replace('_', '-')}")


def _inapplicable(asked: LoadOptions, sets_rates: bool) -> Iterator[tuple[str, str]]:
    """Yield the name and the reason of every option without effect, given or not."""
    yield from _of_the_server(asked)
    yield from _of_arrivals(asked, sets_rates)
    yield from _of_prompts(asked)
    if not asked.cancel:
        yield "cancel_after", "it requires --cancel"
    if asked.duration is None and (asked.requests is not None or asked.trace is not None):
        yield "cool_down", "it requires --duration: otherwise the load ends with the last request"


def _of_the_server(asked: LoadOptions) -> Iterator[tuple[str, str]]:
    if asked.openai:
        yield "target", "it is the address of a mesh and excludes --openai"
        yield "retries", "the SDK makes them; --openai has none"
        for name in ("tls_cert", "tls_key"):
            yield name, "it is for a mesh and excludes --openai"
        if asked.openai.startswith("http://"):
            yield "tls_ca", "it requires an https:// URL"
    else:
        for name in ("leave_out", "rename"):
            yield name, "it requires --openai"


def _of_arrivals(asked: LoadOptions, sets_rates: bool) -> Iterator[tuple[str, str]]:
    if sets_rates:
        for name in ("users", "trace"):
            yield name, "this command chooses the rates; see 'specmesh load run'"
    if asked.users is not None:
        yield "arrivals", "it is for an open loop and excludes --users"
    if asked.trace is not None:
        yield "arrivals", "--trace sets the arrivals"
    else:
        yield "speed", "it requires --trace"
    if asked.arrivals is not ArrivalPattern.GAMMA:
        yield "burstiness", "it requires --arrivals gamma"
    if asked.arrivals is not ArrivalPattern.RAMP:
        yield "ramp_to", "it requires --arrivals ramp"


def _of_prompts(asked: LoadOptions) -> Iterator[tuple[str, str]]:
    elsewhere = "--prompts" if asked.prompts else "--trace" if asked.trace else ""
    if elsewhere:
        for name in ("prompt_tokens", "prefix_groups", "prefix_tokens", "turns"):
            yield name, f"it is for random prompts and excludes {elsewhere}"
    if not asked.prefix_groups:
        yield "prefix_tokens", "it requires --prefix-groups"
    if elsewhere == "--trace":
        yield "output_tokens", "--trace sets the length of answers"
    # A prompt file may hold conversations of several turns; asked.py checks that.
    one_turn = elsewhere == "--trace" or (not elsewhere and asked.turns == ConstantLength(1))
    if asked.users is None and one_turn:
        yield "think", "it requires --users or conversations of several turns"
