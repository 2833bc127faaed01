"""The checks of a profile's values, by which tools refuse a file that nobody has measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.trees.plan import MAX_WIDTH
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.options import OPTIONS
from specmesh.simulation.calls import FIRST_DRAFT_TOKENS
from specmesh.simulation.costs import MANY
from specmesh.simulation.law import Law
from specmesh.tools.profile.rounds import Drafting, ProfiledAcceptance, ProfiledCosts, Way

_MOST: Final = 2.0**63
"""Any number is below it; a seed may come near."""
_ROUNDING: Final = 1e-6


def check_numbers(value: object, field: str = "") -> None:
    """Raise ``InvalidField`` for a number in ``value``, such as a mapping, that nobody can have
    measured. ``field`` is the name of ``value``."""
    if isinstance(value, int | float):
        if not 0 <= value <= _MOST:
            raise InvalidField(field, "must be finite and not negative")
    elif isinstance(value, Mapping | list | tuple):
        for name, part in _parts(value):
            check_numbers(part, f"{field}.{name}".lstrip("."))


def check_known(given: object, known: object, field: str = "") -> None:
    """Raise ``InvalidField`` for a field in ``given``, as it was read, that ``known`` lacks, into
    which it was read."""
    if isinstance(given, Mapping) and isinstance(known, Mapping):
        for name in given:
            if name not in known:
                raise InvalidField(f"{field}.{name}".lstrip("."), "is not known")
    if isinstance(given, Mapping | list) and isinstance(known, Mapping | list | tuple):
        for (name, part), (_, own) in zip(_in_order(given, known), _parts(known), strict=False):
            check_known(part, own, f"{field}.{name}".lstrip("."))


def check_costs(costs: ProfiledCosts) -> None:
    """Raise ``InvalidField`` for costs that contradict themselves."""
    laws = [("target", costs.target), *((f"drafters.{n}", e) for n, e in enumerate(costs.drafters))]
    laws += [] if costs.heads is None else [("heads", costs.heads)]
    for name, law in laws:
        _check_rest(f"costs.{name}.rest", law)
    if not any(costs.target.at_knots):
        raise InvalidField("costs.target.at_knots", "must not all be 0")
    for role in ("target", "drafter"):
        if not getattr(costs.contention, role):
            raise InvalidField(f"costs.contention.{role}", "must be above 0")
    for role, cores in costs.cores.items():
        if not cores.numbers:
            raise InvalidField(f"costs.cores.{role}.numbers", "must not be empty")
        if not cores.threads:
            raise InvalidField(f"costs.cores.{role}.threads", "must be above 0")
    for at, tried in enumerate(costs.observed):
        _check_way(f"costs.observed.{at}.way", tried.way)
        if tried.streams not in (1, MANY):
            raise InvalidField(f"costs.observed.{at}.streams", f"must be 1 or {MANY}")
    for at, spent in enumerate(costs.orchestrating):
        _check_strategy(f"costs.orchestrating.{at}", spent.strategy)


def check_acceptance(acceptances: Sequence[ProfiledAcceptance], costs: ProfiledCosts) -> None:
    """Raise ``InvalidField`` for rounds that no way of decoding makes, or whose drafts have no
    costs."""
    for at, made in enumerate(acceptances):
        field = f"acceptance.{at}"
        _check_way(f"{field}.way", made.way)
        if made.way.drafting is Drafting.HEADS and costs.heads is None:
            raise InvalidField(f"{field}.way.strategy", "drafts with heads, which have no costs")
        if made.way.drafting is Drafting.DRAFTER and not costs.drafters:
            raise InvalidField(f"{field}.way.strategy", "needs a drafter, which has no costs")
        if bool(made.levels) != (made.nodes > 0):
            raise InvalidField(f"{field}.levels", "must be there if and only if there are drafts")
        most = made.way.lookahead
        if most is not None and len(made.levels) > most:
            raise InvalidField(f"{field}.levels", f"must be at most {most}, the lookahead")
        if made.nodes > MAX_WIDTH:
            raise InvalidField(f"{field}.nodes", f"must be at most {MAX_WIDTH}")
        if any(each > FIRST_DRAFT_TOKENS * MAX_WIDTH for each in made.levels):
            reason = f"must be at most {FIRST_DRAFT_TOKENS * MAX_WIDTH} each"
            raise InvalidField(f"{field}.levels", reason)
        if made.tokens > len(made.levels) + 1 + _ROUNDING:
            raise InvalidField(f"{field}.tokens", "must be at most one more than there are levels")


def _check_way(field: str, way: Way) -> None:
    _check_strategy(field, way.strategy)
    for name, value in (("lookahead", way.lookahead), ("width", way.width)):
        refusal = None if value is None else OPTIONS[name].refusal(value)  # type: ignore[arg-type]
        if refusal is not None:
            raise InvalidField(f"{field}.{name}", refusal)


def _check_strategy(field: str, strategy: str) -> None:
    if strategy not in STRATEGIES:
        raise InvalidField(f"{field}.strategy", f"{strategy!r} is not known")


def _check_rest(field: str, law: Law) -> None:
    quantiles = [quantile for quantile, _ in law.rest]
    if quantiles and (quantiles != sorted(quantiles) or not math.isclose(quantiles[-1], 1)):
        raise InvalidField(field, "must have quantiles that rise to 1")


def _parts(value: object) -> Iterator[tuple[object, object]]:
    """Yield the parts of a mapping or sequence by their names or numbers."""
    assert isinstance(value, Mapping | list | tuple)
    yield from value.items() if isinstance(value, Mapping) else enumerate(value)


def _in_order(given: object, known: object) -> Iterator[tuple[object, object]]:
    """Yield the parts of ``given`` in the order of those of ``known``; None for one it lacks."""
    if isinstance(given, Mapping) and isinstance(known, Mapping):
        yield from ((name, given.get(name)) for name in known)
    else:
        yield from _parts(given)
