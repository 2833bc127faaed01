"""The model's layers, compiled: norms, rotations, activations and sums in a few kernels each.

All layers of a model have the same code, which is compiled once for a single token and once for any
other number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
import torch.fx.experimental._config
from torch import nn

log = logging.getLogger(__name__)


def compile_layers(model: Any, warm_up: Callable[[], None]) -> list[nn.Module]:
    """Compile the layers of ``model``, which ``warm_up`` runs, and return them; none if their code
    cannot be compiled, in which case they stay as they are."""
    names = set(model._no_split_modules or ())
    layers: list[nn.Module] = [
        module for module in model.modules() if type(module).__name__ in names
    ]
    for layer in layers:
        layer.compile(dynamic=True, fullgraph=True)
    try:
        # Or sizes that happen to be equal in the first pass must be equal in all.
        with torch.fx.experimental._config.patch(  # type: ignore[attr-defined]
            use_duck_shape=False
        ):
            warm_up()
    except Exception:
        log.warning("layers are not compiled", exc_info=True, extra={"layers": sorted(names)})
        for layer in layers:
            layer._compiled_call_impl = None
        return []
    return layers


def call_before(layer: nn.Module, action: Callable[[], None]) -> None:
    """Call ``action`` before each call of a compiled ``layer``."""
    compiled = layer._compiled_call_impl
    assert compiled is not None

    def call(*arguments: Any, **options: Any) -> Any:
        action()
        return compiled(*arguments, **options)

    layer._compiled_call_impl = call
