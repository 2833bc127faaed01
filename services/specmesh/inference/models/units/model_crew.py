"""The crew of a transformers model, whose forward passes it divides."""

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


class ModelCrew(Crew):
    """A crew that is the ``Divider`` of one model."""

    def divide(self, model: Any) -> None:
        """Move the linear layers to the crew's memory, and have the crew compute them."""
        divide_linears(model, self)

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return new memory that all units map."""
        return self.memory.zeros(shape, dtype)

    def tune(self, model: Any, kv: KVShape) -> None:
        """Measure the units, and divide by the plan that follows."""
        self.measure = partial(measure, self, model, kv)
        """Measures the units' current speeds; returns a plan for them."""
        self.use(self.measure())

    def attention(self, store: KVStore, group: Group) -> DividedAttention | None:
        """Return the divided attention of ``group``, if units share it."""
        return divide_attention(store, group, self)
