"""Keeps what goes into a model's output layer: the hidden states that its logits are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


class HiddenTap:
    """Stands in front of a model's output layer, wherever its code calls that."""

    def __init__(self, model: Any) -> None:
        """Tap ``model``, whose layers are in their final form: they can't be replaced afterwards,
        nor do their hooks run."""
        self.latest: Tensor | None = None
        """``[1, rows, hidden]`` of the latest forward pass."""
        output = model.get_output_embeddings()
        parent, name = _place_of(model, output)
        self._layer: Callable[[Tensor], Tensor] = getattr(parent, name)
        parent.__dict__[name] = self  # where Python looks first, see ``cpu/replace.py``

    def __call__(self, hidden: Tensor) -> Tensor:
        """What the output layer makes of ``hidden``."""
        self.latest = hidden
        return self._layer(hidden)


def _place_of(model: Any, output: Any) -> tuple[Any, str]:
    """The module that has ``output``, a module or what ``replace`` calls in its place, and its name
    there."""
    for module in model.modules():
        for name, child in module._modules.items():
            if output in (child, getattr(module, name)):
                return module, name
    raise AssertionError("an output layer that is no part of its model")
