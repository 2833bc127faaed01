"""The division of a transformers model's forward passes among a crew."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specmesh.inference.engine.batch import Group
from specmesh.inference.engine.kv_store import KVShape, KVStore
from specmesh.inference.models.units.attention import DividedAttention, divide_attention
from specmesh.inference.models.units.crew import Crew
from specmesh.inference.models.units.linear import divide_linears
from specmesh.inference.models.units.measure import measure
from specmesh.inference.models.units.members.specs import UnitSpec


class CrewDivider:
    """A ``Divider`` among units, which starts them. Raises ``ModelNotLoadable`` if this process
    can't have them."""

    def __init__(self, specs: Sequence[UnitSpec]) -> None:
        self.crew = Crew(specs)

    def divide(self, model: Any) -> None:
        """Move the linear layers to the crew's memory, and have the crew compute them."""
        divide_linears(model, self.crew)

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return new memory that all units map."""
        return self.crew.memory.zeros(shape, dtype)

    def share_kv(self, kv: Tensor) -> None:
        """Let units read ``kv``."""
        self.crew.share_kv(kv)

    def tune(self, model: Any, kv: KVShape) -> None:
        """Measure the units, and divide by the plan that follows."""
        self.measure = partial(measure, self.crew, model, kv)
        """Measures the units' current speeds; returns a plan for them."""
        self.crew.use(self.measure())

    def attention(self, store: KVStore, group: Group) -> DividedAttention | None:
        """Return the divided attention of ``group``, if units share it."""
        return divide_attention(store, group, self.crew)

    def adapt(self) -> None:
        """Let units rest, and follow changes of their speeds."""
        self.crew.adapt()

    def close(self) -> None:
        """End the units."""
        self.crew.close()
