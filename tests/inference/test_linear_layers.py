"""Linear layers in another layout compute the same, and a row's result is that row's alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from specmesh.inference.models.cpu.linear import PackedLinear, pack_linears
from specmesh.inference.models.cpu.panel_linear import TILES, PanelLinear, best_tile

pytestmark = [pytest.mark.numbers, pytest.mark.cpu_only("their layouts are for a CPU")]

needs_bf16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="oneDNN has no bf16 here"
)
needs_fp16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_fp16_supported(), reason="oneDNN has no fp16 here"
)
needs_vectors = pytest.mark.skipif(best_tile() is None, reason="the library is faster here")
of_each_tile = pytest.mark.parametrize(
    "tile", [pytest.param(TILES[name], id=name) for name in TILES]
)


def layer_and_inputs(
    num_rows: int, num_features: int, num_outputs: int, *, bias: bool, dtype: torch.dtype
) -> tuple[nn.Linear, Tensor]:
    torch.manual_seed(1)
    plain = nn.Linear(num_features, num_outputs, bias=bias, dtype=dtype)
    return plain, torch.randn(1, num_rows, num_features, dtype=dtype)


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(torch.bfloat16, marks=needs_bf16),
        pytest.param(torch.float16, marks=needs_fp16),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_rows", [0, 1, 3, 4, 17])
def test_layer_in_16_bits_computes_the_same(dtype, bias, num_rows):
    plain, inputs = layer_and_inputs(num_rows, 48, 80, bias=bias, dtype=dtype)
    with torch.inference_mode():
        want, got = plain(inputs), PackedLinear(plain)(inputs)
    assert got.shape == want.shape
    torch.testing.assert_close(got, want)


@needs_vectors
@of_each_tile
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_rows", [0, 1, 5, 12, 13, 97, 200])
@pytest.mark.parametrize(("num_features", "num_outputs"), [(1, 64), (48, 33), (800, 1), (385, 70)])
def test_layer_in_32_bits_computes_the_same(tile, bias, num_rows, num_features, num_outputs):
    size = (num_rows, num_features, num_outputs)
    plain, inputs = layer_and_inputs(*size, bias=bias, dtype=torch.float32)
    with torch.inference_mode():
        want, got = plain(inputs), PanelLinear(plain, tile)(inputs)
    assert got.shape == want.shape
    assert got.is_contiguous()
    torch.testing.assert_close(got, want)


@needs_vectors
@of_each_tile
def test_rows_may_lie_anywhere(tile):
    plain, inputs = layer_and_inputs(12, 64, 32, bias=False, dtype=torch.float32)
    packed = PanelLinear(plain, tile)
    with torch.inference_mode():
        for rows in (inputs[:, ::3], inputs.mT.contiguous().mT, inputs[:, 5:7]):
            torch.testing.assert_close(packed(rows), plain(rows))


@needs_vectors
@of_each_tile
@pytest.mark.parametrize("shape", [(64,), (5, 64), (0, 64), (2, 3, 64), (0, 3, 64), (2, 1, 3, 64)])
def test_rows_may_have_any_shape(tile, shape):
    plain, _ = layer_and_inputs(0, 64, 40, bias=True, dtype=torch.float32)
    inputs = torch.randn(shape)
    with torch.inference_mode():
        want, got = plain(inputs), PanelLinear(plain, tile)(inputs)
    assert got.shape == want.shape
    torch.testing.assert_close(got, want)


@needs_vectors
@pytest.mark.parametrize("inputs", [torch.zeros(1, 2, 63), torch.zeros(1, 2, 64).bfloat16()])
def test_what_would_be_misread_is_refused(inputs):
    plain, _ = layer_and_inputs(0, 64, 40, bias=True, dtype=torch.float32)
    with pytest.raises(ValueError, match="inputs of 64 float32 are wanted"):
        PanelLinear(plain, TILES["AVX2"])(inputs)


@needs_vectors
@of_each_tile
@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_result_of_a_row_in_32_bits_does_not_depend_on_the_others(tile, num_threads):
    plain, inputs = layer_and_inputs(200, 500, 130, bias=True, dtype=torch.float32)
    packed, before = PanelLinear(plain, tile), torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        with torch.inference_mode():
            together = packed(inputs)
            for width in (1, 2, 7, 12, 13, 96, 97):
                for first in range(0, 200 - width, 37):
                    rows = slice(first, first + width)
                    assert torch.equal(packed(inputs[:, rows]), together[:, rows])
    finally:
        torch.set_num_threads(before)


def infinities_and_nothing() -> Tensor:
    return torch.tensor([[[torch.inf, 1.0], [torch.nan, 1.0], [0.0, 1.0], [-torch.inf, 1.0]]])


@needs_vectors
@of_each_tile
def test_what_is_no_number_stays_in_its_row(tile):
    plain = nn.Linear(2, 3)
    with torch.inference_mode():
        got, want = (each(infinities_and_nothing()) for each in (PanelLinear(plain, tile), plain))
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got.isinf(), want.isinf())


@needs_vectors
def test_layers_in_32_bits_are_laid_out_for_vectors():
    model = nn.Sequential(nn.Linear(16, 16))
    pack_linears(model)
    assert type(model[0]) is PanelLinear


def test_layers_in_32_bits_stay_where_the_processor_has_short_vectors_only(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    model = nn.Sequential(nn.Linear(16, 16))
    pack_linears(model)
    assert type(model[0]) is nn.Linear
