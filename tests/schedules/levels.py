"""A draft of the simulated models, level by level."""

from __future__ import annotations

from tests.draft_shaper import DraftShaper
from tests.schedules.models import drafter_logits

from specmesh.decoding.drafting import draw_children
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.simulated.hashed import chained
from specmesh.mesh.v1alpha1 import drafter_pb2
from specmesh.serving.codec.wire import write_choices, write_distributions


class Levels:
    """Grows by what ``request`` asks for; the tree's nodes, ``states`` and ``positions`` of which
    are given, grow with it. Says what the target would in a share ``agreement`` of all places."""

    def __init__(
        self,
        request: drafter_pb2.DraftRequest,
        sampling: Sampling,
        agreement: float,
        states: list[int],
        positions: list[int],
    ) -> None:
        self._shaper = DraftShaper(request)
        self._num_choices = request.num_choices
        self._sampling = sampling
        self._agreement = agreement
        self._states = states
        self._positions = positions

    @property
    def ended(self) -> bool:
        """Whether the draft needs no level more."""
        return self._shaper.ended

    def write(self, part: drafter_pb2.DraftResponse) -> None:
        """Add the next level to ``part``."""
        tips, count = self._shaper.tips, self._shaper.num_candidates
        drawn = [
            draw_children(
                drafter_logits(self._states[tip], self._agreement),
                *(self._sampling, self._positions[tip], count),
                num_choices=max(self._num_choices, count),
            )
            for tip in tips
        ]
        for tip, each, children in zip(tips, drawn, self._shaper.grow(drawn), strict=True):
            part.token_ids.extend(children)
            part.parents.extend([tip] * len(children))
            self._states.extend(chained(self._states[tip], child) for child in children)
            self._positions.extend([self._positions[tip] + 1] * len(children))
            if each.distribution is not None and children:
                part.draft_distributions.extend(write_distributions({tip: each.distribution}))
            if each.choices is not None and self._num_choices and children:
                told = each.choices.first(self._num_choices)
                part.choices.extend(write_choices({tip: told}))
                part.entropies.append(told.entropy)
