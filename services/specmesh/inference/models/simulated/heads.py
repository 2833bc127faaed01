"""Simulated heads, which take a set time for each level and agree with the target in part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specmesh.decoding.simulated.hashed import SimulatedDrafter, chained
from specmesh.inference.engine.heads.engine_heads import KeepsNothing, Reading
from specmesh.inference.model import Logits
from specmesh.inference.models.simulated.clock import pass_time
from specmesh.inference.models.simulated.model import Hidden
from specmesh.inference.models.simulated.rows import logits_of


class SimulatedHeads(KeepsNothing):
    """``EngineHeads`` whose states are hashes of the context, as those of a simulated target."""

    def __init__(self, speaker: SimulatedDrafter, max_depth: int, level_s: float) -> None:
        """Guess as ``speaker`` does; a level takes ``level_s`` seconds."""
        self.max_depth = max_depth
        self._speaker = speaker
        self._level_s = level_s

    def begin(self, hidden: Hidden) -> Hidden:
        """Return the state that the target's next token is read in."""
        return hidden

    def step(self, readings: Sequence[Reading]) -> tuple[Logits, Sequence[Hidden]]:
        """Step as in ``EngineHeads``, once the time has passed. Raises ``Interrupted``."""
        read = [
            (hidden, token)
            for reading in readings
            for hidden, token in zip(reading.states, reading.token_ids, strict=True)
        ]
        pass_time([hidden.clock for hidden, _ in read], self._level_s)
        after = [replace(hidden, state=chained(hidden.state, token)) for hidden, token in read]
        choices = [self._speaker.choices(hidden.state) for hidden in after]
        return logits_of(choices, self._speaker.target.vocab_size), after
