"""Modules that replace a model's own on a GPU take inputs of any shape."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.cuda import linear
from specmesh.inference.models.cuda.graph_passes import _attend
from specmesh.inference.models.cuda.linear import replace_linears
from specmesh.inference.models.cuda.paged_attention import _keys_at_once

SHAPES = [(1, 1, 6), (1, 3, 6), (1, 1, 4, 6), (3, 1, 6), (1, 6), (2, 6), (0, 6), (6,)]


@torch.no_grad()
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_linear_layer_takes_any_number_of_vectors(shape, has_bias):
    layer = nn.Linear(6, 5, bias=has_bias)
    model = nn.ModuleDict({"layer": layer})
    replace_linears(model)
    assert model["layer"] is not layer
    inputs = torch.randn(shape)
    torch.testing.assert_close(model["layer"](inputs), layer(inputs))


@torch.no_grad()
def test_layers_with_one_input_take_others():
    layers = {name: nn.Linear(6, size) for name, size in zip("qkv", (4, 2, 2), strict=True)}
    model = nn.ModuleDict({f"{name}_proj": layer for name, layer in layers.items()})
    replace_linears(model)
    one, other = torch.randn(2, 1, 3, 6)
    for inputs in ((one, one, one), (one, other, one), (other, other, other)):
        for (name, layer), each in zip(layers.items(), inputs, strict=True):
            torch.testing.assert_close(model[f"{name}_proj"](each), layer(each))


@pytest.mark.parametrize("wrong", ["query heads", "key heads", "key numbers", "value numbers"])
def test_heads_that_the_configuration_does_not_say_are_refused(wrong):
    """Their keys and values would lie in the slots of others."""
    module = SimpleNamespace(paged_kv=torch.zeros(2, 32, 2, 8), paged_heads=4)
    shapes = {"query": [1, 4, 1, 8], "key": [1, 2, 1, 8], "value": [1, 2, 1, 8]}
    name, dimension = wrong.split()
    shapes[name][1 if dimension == "heads" else 3] *= 2
    query, key, value = (torch.zeros(shape) for shape in shapes.values())
    with pytest.raises(ValueError, match="the model's configuration says"):
        _attend(module, query, key, value, None, paged=None)


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("head_dim", [16, 64, 128, 256])
def test_keys_and_values_fit_in_the_shared_memory_of_small_gpus(head_dim, itemsize):
    keys = _keys_at_once(itemsize, head_dim)
    assert keys in {16, 32, 64}
    assert 2 * keys * head_dim * itemsize <= 32 << 10


def test_a_model_with_wrong_products_of_one_vector_is_refused(monkeypatch, load_target):
    monkeypatch.setattr(linear, "matvec", lambda weight, vector: weight @ vector * 1.1)
    with pytest.raises(ModelNotLoadable, match="computes different logits"):
        load_target()
