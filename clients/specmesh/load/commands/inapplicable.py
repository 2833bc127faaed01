"""Options that would change nothing: who writes one believes that it does."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

import typer

from specmesh.load.commands.pattern import ArrivalPattern
from specmesh.load.workload.lengths import ConstantLength

if TYPE_CHECKING:
    from specmesh.load.commands.options import LoadOptions


def refuse_inapplicable(asked: LoadOptions, written: Set[str], *, sets_rates: bool) -> None:
    """Raise BadParameter for an option of ``written``, names of fields, that does not go with the
    others. ``sets_rates``: the command does, as sweeps and searches."""
    for name, why in _inapplicable(asked, sets_rates):
        if name in written:
            raise typer.BadParameter(why, param_hint=f"--{name.replace('_', '-')}")


def _inapplicable(asked: LoadOptions, sets_rates: bool) -> Iterator[tuple[str, str]]:
    """What has no effect, whether or not it is written, and why."""
    yield from _of_the_server(asked)
    yield from _of_arrivals(asked, sets_rates)
    yield from _of_prompts(asked)
    if not asked.cancel:
        yield "cancel_after", "goes with --cancel"
    if asked.duration is None and (asked.requests is not None or asked.trace is not None):
        yield "cool_down", "goes with --duration: without it the load lasts until all is sent"


def _of_the_server(asked: LoadOptions) -> Iterator[tuple[str, str]]:
    if asked.openai:
        yield "target", "is a mesh's: not with --openai"
        yield "retries", "are the SDK's: not with --openai"
        for name in ("tls_cert", "tls_key"):
            yield name, "is for a mesh: not with --openai"
        if asked.openai.startswith("http://"):
            yield "tls_ca", "goes with an https:// URL"
    else:
        for name in ("leave_out", "rename"):
            yield name, "goes with --openai"


def _of_arrivals(asked: LoadOptions, sets_rates: bool) -> Iterator[tuple[str, str]]:
    if sets_rates:
        for name in ("users", "trace"):
            yield name, "not here, where rates are tried; see 'specmesh load run'"
    if asked.users is not None:
        yield "arrivals", "are of an open loop: not with --users"
    if asked.trace is not None:
        yield "arrivals", "are the recording's: not with --trace"
    else:
        yield "speed", "goes with --trace"
    if asked.arrivals is not ArrivalPattern.GAMMA:
        yield "burstiness", "goes with --arrivals gamma"
    if asked.arrivals is not ArrivalPattern.RAMP:
        yield "ramp_to", "goes with --arrivals ramp"


def _of_prompts(asked: LoadOptions) -> Iterator[tuple[str, str]]:
    elsewhere = "--prompts" if asked.prompts else "--trace" if asked.trace else ""
    if elsewhere:
        for name in ("prompt_tokens", "prefix_groups", "prefix_tokens", "turns"):
            yield name, f"is of random prompts: not with {elsewhere}"
    if not asked.prefix_groups:
        yield "prefix_tokens", "goes with --prefix-groups"
    if elsewhere == "--trace":
        yield "output_tokens", "are the recording's: not with --trace"
    # A file may have conversations of several turns; asked.py looks.
    one_turn = elsewhere == "--trace" or (not elsewhere and asked.turns == ConstantLength(1))
    if asked.users is None and one_turn:
        yield "think", "goes with --users, or with conversations of several turns"
