"""What the target alone says, known beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

import numpy as np

from specmesh.bench.chaos.asks import Ask
from specmesh.bench.kit.experiment import FILTER
from specmesh.client import AcceptanceMode
from specmesh.decoding.sampling import AcceptanceMode as Mode
from specmesh.decoding.sampling import Sampling, choose
from specmesh.decoding.simulated import SimulatedTarget
from specmesh.inference.models.simulated import CHOICE_LOGITS

DRAWING_TEMPERATURE = 15.0
"""At it a simulated target's token has three quarters of the probability; at those of real
models it has all of it."""


class Truth(Protocol):
    """What an answer must be."""

    def tokens(self, ask: Ask, length: int) -> tuple[int, ...] | None:
        """The first ``length`` tokens that the target alone says, stop tokens left aside; None
        where the text isn't the target's or can be one of many."""
        ...

    def wrong_place(self, ask: Ask, said: Sequence[int], unchecked: set[int]) -> int | None:
        """The first place in ``said``, but those ``unchecked``, at which the target says
        something else after what was said before; None if there is none, or it isn't known."""
        ...


class SimulatedTruth:
    """What a simulated target says. Prompts must be token ids."""

    def __init__(self, target: SimulatedTarget) -> None:
        self._target = target

    def tokens(self, ask: Ask, length: int) -> tuple[int, ...] | None:
        """See ``Truth``."""
        if ask.strategy == FILTER or not self._is_certain(ask):
            return None
        return tuple(islice(self._alone(ask), length))

    def wrong_place(self, ask: Ask, said: Sequence[int], unchecked: set[int]) -> int | None:
        """See ``Truth``."""
        if not self._is_certain(ask):
            return None
        state = self._start(ask)
        sampling = _sampling(ask)
        for place, token in enumerate(said):
            expected = self._token(state, sampling, len(ask.prompt) + place)
            if token != expected and place not in unchecked:
                return place
            state = self._target.after(state, (token,))
        return None

    @staticmethod
    def _is_certain(ask: Ask) -> bool:
        rejection = ask.mode is AcceptanceMode.REJECTION
        return not (rejection and ask.temperature >= DRAWING_TEMPERATURE)

    def _alone(self, ask: Ask) -> Iterator[int]:
        state, sampling, position = self._start(ask), _sampling(ask), len(ask.prompt)
        while True:
            token = self._token(state, sampling, position)
            yield token
            state = self._target.after(state, (token,))
            position += 1

    def _start(self, ask: Ask) -> int:
        assert not isinstance(ask.prompt, str)
        return self._target.after(self._target.start, ask.prompt)

    def _token(self, state: int, sampling: Sampling, position: int) -> int:
        token = self._target.token(state)
        if sampling.temperature < DRAWING_TEMPERATURE:
            return token
        logits = np.full(self._target.vocab_size, CHOICE_LOGITS[-1], np.float32)
        logits[token] = CHOICE_LOGITS[0]
        return choose(logits, sampling, position)


Question = tuple[str | tuple[int, ...], float, int]
"""What the target's own text depends on: prompt, temperature and seed."""


class AskedTruth:
    """What a mesh said in peace, by the target alone, to the same prompts; long enough."""

    def __init__(self, said: Mapping[Question, Sequence[int]]) -> None:
        self._said = said

    def tokens(self, ask: Ask, length: int) -> tuple[int, ...] | None:
        """See ``Truth``."""
        if ask.strategy == FILTER or ask.mode_name == AcceptanceMode.REJECTION:
            return None
        return tuple(self._said[ask.prompt, ask.temperature, ask.seed][:length])

    def wrong_place(
        self,
        ask: Ask,  # noqa: ARG002
        said: Sequence[int],  # noqa: ARG002
        unchecked: set[int],  # noqa: ARG002
    ) -> int | None:
        """See ``Truth``: only whole texts are known."""
        return None


def _sampling(ask: Ask) -> Sampling:
    return Sampling(temperature=ask.temperature, seed=ask.seed, mode=Mode.COUPLED)
