"""The right answers: what the target alone says, as far as it is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

import numpy as np

from specmesh.bench.chaos.requests import ChaosRequest
from specmesh.client import AcceptanceMode
from specmesh.decoding.sampling import AcceptanceMode as Mode
from specmesh.decoding.sampling import Sampling, choose
from specmesh.decoding.simulated.hashed import SimulatedTarget
from specmesh.inference.models.simulated.rows import CHOICE_LOGITS
from specmesh.tools.kit.experiment import FILTER

DRAWING_TEMPERATURE = 15.0
"""At this temperature a simulated target's first choice has three quarters of the probability;
at usual ones it has all of it."""


class Truth(Protocol):
    """The right answers to requests."""

    def tokens(self, request: ChaosRequest, length: int) -> tuple[int, ...] | None:
        """Return the first ``length`` tokens that the target alone says, ignoring stop tokens. It
        returns None if the right text is unknown, because the filter made it or it was drawn at
        random."""
        ...

    def wrong_position(
        self, request: ChaosRequest, said: Sequence[int], unchecked: set[int]
    ) -> int | None:
        """Return the first position in ``said``, except those ``unchecked``, whose token isn't the
        target's after the preceding ones; None if there is none, or if it is unknown."""
        ...


class SimulatedTruth:
    """The texts of a simulated target, computed. Prompts must be token ids."""

    def __init__(self, target: SimulatedTarget) -> None:
        self._target = target

    def tokens(self, request: ChaosRequest, length: int) -> tuple[int, ...] | None:
        """Return the target's own text; None with the filter, and where tokens are drawn at
        random."""
        if request.strategy == FILTER or not self._is_certain(request):
            return None
        return tuple(islice(self._alone(request), length))

    def wrong_position(
        self, request: ChaosRequest, said: Sequence[int], unchecked: set[int]
    ) -> int | None:
        """Return the first verified position whose token isn't the target's; None for random
        draws."""
        if not self._is_certain(request):
            return None
        state = self._start(request)
        sampling = _sampling(request)
        for position, token in enumerate(said):
            expected = self._token(state, sampling, len(request.prompt) + position)
            if token != expected and position not in unchecked:
                return position
            state = self._target.after(state, (token,))
        return None

    @staticmethod
    def _is_certain(request: ChaosRequest) -> bool:
        rejection = request.mode is AcceptanceMode.REJECTION
        return not (rejection and request.temperature >= DRAWING_TEMPERATURE)

    def _alone(self, request: ChaosRequest) -> Iterator[int]:
        state, sampling, position = self._start(request), _sampling(request), len(request.prompt)
        while True:
            token = self._token(state, sampling, position)
            yield token
            state = self._target.after(state, (token,))
            position += 1

    def _start(self, request: ChaosRequest) -> int:
        assert not isinstance(request.prompt, str)
        return self._target.after(self._target.start, request.prompt)

    def _token(self, state: int, sampling: Sampling, position: int) -> int:
        token = self._target.token(state)
        if sampling.temperature < DRAWING_TEMPERATURE:
            return token
        logits = np.full(self._target.vocab_size, CHOICE_LOGITS[-1], np.float32)
        logits[token] = CHOICE_LOGITS[0]
        return choose(logits, sampling, position)


TextKey = tuple[str | tuple[int, ...], float, int]
"""The parameters of the target's own text: prompt, temperature and seed."""


class RecordedTruth:
    """The mesh's answers with the target alone before the first fault."""

    def __init__(self, said: Mapping[TextKey, Sequence[int]]) -> None:
        self._said = said

    def tokens(self, request: ChaosRequest, length: int) -> tuple[int, ...] | None:
        """Return the recorded text; None with the filter and in rejection mode."""
        if request.strategy == FILTER or request.mode_name == AcceptanceMode.REJECTION:
            return None
        return tuple(self._said[request.prompt, request.temperature, request.seed][:length])

    def wrong_position(
        self,
        request: ChaosRequest,  # noqa: ARG002
        said: Sequence[int],  # noqa: ARG002
        unchecked: set[int],  # noqa: ARG002
    ) -> int | None:
        """Return None, because only whole texts are known."""
        return None


def _sampling(request: ChaosRequest) -> Sampling:
    return Sampling(temperature=request.temperature, seed=request.seed, mode=Mode.COUPLED)
