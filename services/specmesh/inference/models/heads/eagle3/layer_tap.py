"""A tap on a target's decoder layers: the hidden states that EAGLE-3 heads read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.heads.seen import Seen


class LayerTap:
    """Hooks that keep the hidden states named by ``layer_ids`` (see ``Eagle3Config``), which must
    exist.

    Raises ``ModelNotLoadable`` for a target whose layers are not in one list.
    """

    def __init__(self, target: Any, layer_ids: Sequence[int]) -> None:
        layers = decoder_layers(target)
        self._found: list[Tensor | None] = [None] * len(layer_ids)
        self._hooks = [self._hook(layers, place, each) for place, each in enumerate(layer_ids)]

    @property
    def latest(self) -> Tensor:
        """The hidden states ``[rows, tokens, layers * hidden]`` of the latest forward pass."""
        found = [each for each in self._found if each is not None]
        assert len(found) == len(self._found), "the target has not run yet"
        return torch.cat(found, -1)

    def remove(self) -> None:
        """Take the hooks away."""
        for hook in self._hooks:
            hook.remove()

    def _hook(self, layers: nn.ModuleList, place: int, layer_id: int) -> Any:
        if layer_id == 0:
            return layers[0].register_forward_pre_hook(
                partial(self._keep_input, place), with_kwargs=True
            )
        return layers[layer_id - 1].register_forward_hook(partial(self._keep_output, place))

    def _keep_input(self, place: int, _layer: Any, given: Any, named: dict[str, Any]) -> None:
        self._found[place] = given[0] if given else named["hidden_states"]

    def _keep_output(self, place: int, _layer: Any, _given: Any, output: Any) -> None:
        self._found[place] = output if isinstance(output, Tensor) else output[0]


def decoder_layers(target: Any) -> nn.ModuleList:
    """Return the decoder layers of ``target``, a model as transformers loads it. Raises
    ``ModelNotLoadable`` for a model whose layers are not in one list."""
    count = target.config.get_text_config().num_hidden_layers
    for module in target.get_decoder().modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return module
    raise ModelNotLoadable(f"{type(target).__name__} has no list of {count} decoder layers")


def check_layer_ids(layer_ids: Sequence[int], num_layers: int) -> None:
    """Raise ``ValueError`` unless a target of ``num_layers`` has hidden states of such ids."""
    if not all(0 <= each <= num_layers for each in layer_ids):
        raise ValueError(
            f"they read the hidden states {list(layer_ids)}, but the target has {num_layers} layers"
        )


@torch.no_grad()
def look_inside(target: Any, token_ids: Tensor, layer_ids: Sequence[int]) -> Seen:
    """Run ``target``, a model as ``read_model`` returns it, along ``token_ids`` ``[rows, tokens]``;
    the hidden states are those named by ``layer_ids``, side by side."""
    tap = LayerTap(target, layer_ids)
    try:
        logits = target(token_ids, use_cache=False).logits
        return Seen(token_ids, tap.latest, logits)
    finally:
        tap.remove()
