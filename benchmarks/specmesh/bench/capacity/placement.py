"""The cores of each part: the measured one has a core for itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """The measured parts of a mesh, one process each, but for an orchestrator of several workers
    and a gateway, which is there only if streams come through it."""

    ORCHESTRATOR = "orchestrator"
    VERIFIER = "verifier"
    DRAFTER = "drafter"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class CorePlan:
    """A set of core numbers for each process; an empty set means all cores.

    ``alone`` is for the role that has a core for itself, and for the relay; ``rest`` is for Redis,
    the trace collector, the generators and this process.
    """

    roles: Mapping[Role, frozenset[int]]
    alone: frozenset[int]
    rest: frozenset[int]

    @property
    def num_generators(self) -> int:
        """Return how many generator processes can run at once."""
        return max(1, len(self.rest))


MODELS_AND_ORCHESTRATOR = (Role.ORCHESTRATOR, Role.VERIFIER, Role.DRAFTER)
"""The roles of a mesh without a gateway."""


def plan_cores(
    cores: Sequence[int], alone: Role, roles: Sequence[Role] = MODELS_AND_ORCHESTRATOR
) -> CorePlan:
    """Divide ``cores`` (core numbers, in order) among ``roles``: the role ``alone`` gets the first
    one for itself, and the others one each if there are more cores than roles."""
    if len(cores) < 2:  # noqa: PLR2004 - nothing to divide
        anywhere = frozenset(cores)
        return CorePlan(dict.fromkeys(roles, anywhere), anywhere, anywhere)
    first, *others = cores
    own = frozenset({first})
    if len(cores) <= len(roles):
        rest = frozenset(others)
        return CorePlan({**dict.fromkeys(roles, rest), alone: own}, own, rest)
    in_order = (alone, *(role for role in roles if role is not alone))
    each = (frozenset({core}) for core in cores)
    return CorePlan(dict(zip(in_order, each, strict=False)), own, frozenset(cores[len(roles) :]))
