"""The model's layers, compiled: norms, rotations, activations and sums in a few kernels each.

All layers of a model have the same code, which is compiled once for a single token and once for any
other number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch._inductor.config
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
        with _of_one_layer():
            warm_up()
    except Exception:
        log.warning("layers are not compiled", exc_info=True, extra={"layers": sorted(names)})
        for layer in layers:
            layer._compiled_call_impl = None
        return []
    return layers


@contextmanager
def _of_one_layer() -> Iterator[None]:
    """Compile in this process, for each processor would get one more with torch of its own; and
    without taking sizes that are equal in the first pass to be equal in all."""
    shapes: Any = torch.fx.experimental._config
    with torch._inductor.config.patch(compile_threads=1), shapes.patch(use_duck_shape=False):
        yield


def call_before(layer: nn.Module, action: Callable[[], None]) -> None:
    """Call ``action`` before each call of a compiled ``layer``."""
    compiled = layer._compiled_call_impl
    assert compiled is not None

    def call(*arguments: Any, **options: Any) -> Any:
        action()
        return compiled(*arguments, **options)

    layer._compiled_call_impl = call
