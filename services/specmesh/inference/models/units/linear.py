"""Linear layers divided among units, all by columns, so that results are only concatenated.

That includes the layers that Megatron divides by rows (the attention's output, the MLP's last),
whose results would have to be added up. Layers with the same input, such as query, key and value,
go to the units as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from specmesh.inference.models.cpu.replace import replace
from specmesh.inference.models.units.crew import Crew

Plain = nn.Linear | Conv1D

CONTEXT_ROOM = 1024
"""Tokens by which a tree may make a sequence longer than the model's context, since branches share
positions."""


class DividedLayers:
    """Layers with the same inputs, stacked in the crew's layer ``number``."""

    def __init__(self, crew: Crew, number: int, columns: Sequence[int]) -> None:
        self._crew = crew
        self._number = number
        self._columns = list(columns)
        self._inputs: Tensor | None = None
        self._results: Sequence[Tensor] = ()

    def compute(self, index: int, inputs: Tensor) -> Tensor:
        """Return the output of layer ``index`` for ``inputs``; the first layer computes all of
        them."""
        if not index or inputs is not self._inputs:
            together = self._crew.linear(self._number, inputs.reshape(-1, inputs.shape[-1]))
            together = together.view(*inputs.shape[:-1], together.shape[-1])
            self._results = torch.split(together, self._columns, -1)
            self._inputs = inputs
        result = self._results[index]
        if index == len(self._columns) - 1:
            self._inputs, self._results = None, ()
        return result


class DividedLinear(nn.Module):
    """A replacement of one of ``layers``, without gradients."""

    def __init__(self, layers: DividedLayers, index: int) -> None:
        super().__init__()
        self._layers = layers
        self._index = index

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Map ``[1, tokens, in_features]`` to ``[1, tokens, out_features]``."""
        return self._layers.compute(self._index, input)


@torch.inference_mode()
def divide_linears(model: Any, crew: Crew) -> None:
    """Move the linear layers of ``model`` to the crew's memory, and have the crew compute them."""
    groups = _groups(model)
    shared = [_share(crew, group) for group in groups]
    numbers = crew.share_layers(shared)
    divided: dict[nn.Module, DividedLinear] = {}
    for group, number in zip(groups, numbers, strict=True):
        layers = DividedLayers(crew, number, [_columns(layer) for layer in group])
        divided |= {layer: DividedLinear(layers, index) for index, layer in enumerate(group)}
    replace(model, divided.get)
    heads, context = model.config.num_attention_heads, model.config.max_position_embeddings
    crew.share_buffers(heads, context + CONTEXT_ROOM, model.dtype)


def linears(model: nn.Module) -> Iterator[tuple[str, Plain]]:
    """Yield the linear layers of ``model`` by name."""
    for name, module in model.named_modules():
        if type(module) is nn.Linear or type(module) is Conv1D:
            yield name, module


def _share(crew: Crew, group: Sequence[Plain]) -> tuple[Tensor, Tensor | None]:
    """Stack the weights and biases of ``group`` in the crew's memory, which the layers then use as
    well."""
    first = group[0].weight
    sizes = [_columns(layer) for layer in group]
    features = first.numel() // sizes[0]
    weight = crew.memory.zeros([sum(sizes), features], first.dtype)
    for layer, rows in zip(group, torch.split(weight, sizes), strict=True):
        if isinstance(layer, nn.Linear):
            rows.copy_(layer.weight)
            layer.weight.data = rows  # an embedding may share it
        else:
            rows.copy_(layer.weight.t())
    if all(layer.bias is None for layer in group):
        return weight, None
    bias = crew.memory.zeros([sum(sizes)], first.dtype)
    for layer, entries in zip(group, torch.split(bias, sizes), strict=True):
        if layer.bias is not None:
            entries.copy_(layer.bias)
    return weight, bias


def _columns(layer: Plain) -> int:
    return int(layer.out_features if isinstance(layer, nn.Linear) else layer.nf)


def _groups(model: Any) -> list[list[Plain]]:
    """Group the linear layers: those that a forward pass calls in a row with the same input go
    together."""
    called: list[tuple[str, Plain, Tensor]] = []
    named = list(linears(model))
    hooks = [
        layer.register_forward_pre_hook(
            lambda layer, inputs, name=name: called.append((name, layer, inputs[0]))
        )
        for name, layer in named
    ]
    try:
        model(input_ids=torch.tensor([[0]]), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    groups: list[list[Plain]] = []
    before: tuple[str, Tensor | None] = ("", None)
    for name, layer, inputs in called:
        if any(layer is each for group in groups for each in group):
            continue  # it is called again
        now = (name.rpartition(".")[0], inputs)
        if now[0] == before[0] and now[1] is before[1] and layer.weight.dtype == inputs.dtype:
            groups[-1].append(layer)
        else:
            groups.append([layer])
        before = now
    known = {id(layer) for group in groups for layer in group}
    return [*groups, *([layer] for _, layer in named if id(layer) not in known)]
