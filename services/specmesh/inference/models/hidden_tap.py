"""A tap on the input of a model's output layer: the hidden states from which it computes logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


class HiddenTap:
    """A wrapper around a model's output layer that keeps its input."""

    def __init__(self, model: Any) -> None:
        """Tap ``model``. Its layers must be in their final form: they can't be replaced afterwards,
        and the output layer's hooks no longer run."""
        self.latest: Tensor | None = None
        """The hidden states ``[1, rows, hidden]`` of the latest forward pass."""
        output = model.get_output_embeddings()
        parent, name = _place_of(model, output)
        self._layer: Callable[[Tensor], Tensor] = getattr(parent, name)
        parent.__dict__[name] = self  # where Python looks first, see ``cpu/replace.py``

    def __call__(self, hidden: Tensor) -> Tensor:
        """Keep ``hidden`` and return the output layer's result."""
        self.latest = hidden
        return self._layer(hidden)


def _place_of(model: Any, output: Any) -> tuple[Any, str]:
    """Return the module that holds ``output`` (or its replacement by ``replace``), and its name
    there."""
    for module in model.modules():
        for name, child in module._modules.items():
            if output in (child, getattr(module, name)):
                return module, name
    raise AssertionError("the output layer is not part of its model")
