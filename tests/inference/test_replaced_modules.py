"""What a model's own modules are replaced by computes the same, and what isn't the same stays."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from specmesh.inference.models.cpu.norm import CompiledRMSNorm, FusedRMSNorm, fuse_norms
from specmesh.inference.models.cpu.replace import replace
from specmesh.inference.models.transformers_model import TransformersModel

pytestmark = [
    pytest.mark.numbers,
    pytest.mark.cpu_only("replacements that are faster there"),
]

MAPPED_FILES = Path("/proc/self/maps")


def of_random_weight(norm: nn.Module, dtype: torch.dtype) -> nn.ModuleDict:
    torch.manual_seed(2)
    assert isinstance(norm.weight, nn.Parameter)
    nn.init.normal_(norm.weight)
    return nn.ModuleDict({"norm": norm.to(dtype)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_tokens", [0, 1, 5, 130])
def test_fused_norm_computes_the_same_and_rounds_at_the_same_place(dtype, num_tokens):
    model = of_random_weight(LlamaRMSNorm(48, eps=1e-5), dtype)
    plain = model["norm"]
    fuse_norms(model, dtype)
    assert type(model["norm"]) is (CompiledRMSNorm if dtype == torch.float32 else FusedRMSNorm)
    inputs = 3 * torch.randn(1, num_tokens, 48, dtype=dtype)
    with torch.inference_mode():
        got, want = model["norm"](inputs), plain(inputs)
    assert got.dtype == dtype
    torch.testing.assert_close(got, want)
    if dtype != torch.float32 and num_tokens:
        assert (got != want).float().mean() < 0.01


def compiled(num_features: int) -> tuple[nn.Module, nn.Module]:
    model = of_random_weight(LlamaRMSNorm(num_features, eps=1e-5), torch.float32)
    plain = model["norm"]
    fuse_norms(model, torch.float32)
    assert type(model["norm"]) is CompiledRMSNorm
    return model["norm"], plain


@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_norm_of_a_row_does_not_depend_on_the_others(num_threads):
    norm, plain = compiled(500)
    rows, before = torch.randn(1, 200, 500), torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        with torch.inference_mode():
            together = norm(rows)
            torch.testing.assert_close(together, plain(rows))
            for width in (1, 3, 70):
                assert torch.equal(norm(rows[:, 7 : 7 + width]), together[:, 7 : 7 + width])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("num_features", [1, 16, 48])
def test_normed_rows_may_lie_anywhere_and_have_any_shape(num_features):
    norm, plain = compiled(num_features)
    with torch.inference_mode():
        rows = torch.randn(2, 6, 4, num_features)
        columns_first = rows.mT.contiguous().mT
        wider = torch.randn(1, 7, 2 * num_features)
        apart = (wider[..., num_features:], wider[..., ::2], columns_first[0, 0])
        alike = (rows[:, :, :1].expand(2, 6, 4, -1), rows[..., :1].expand(2, 6, 4, num_features))
        transposed = (columns_first.transpose(1, 2), rows[:, ::3])
        for each in (rows, *apart, *alike, *transposed, rows[0, 0, 0], rows[:0]):
            got, want = norm(each), plain(each)
            assert got.shape == want.shape
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    "inputs",
    [
        torch.zeros(1, 2, 47),
        torch.zeros(1, 2, 48).bfloat16(),
        torch.zeros(1, 2, 48, device="meta"),
    ],
)
def test_what_a_compiled_norm_would_misread_is_refused(inputs):
    with pytest.raises(ValueError, match="inputs of 48 float32 are wanted"):
        compiled(48)[0](inputs)


class LateRMSNorm(LlamaRMSNorm):
    """Weighs before it rounds."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden_states.float()).to(hidden_states.dtype)


def test_norm_that_rounds_at_another_place_stays():
    model = of_random_weight(LateRMSNorm(48), torch.bfloat16)
    fuse_norms(model, torch.bfloat16)
    assert type(model["norm"]) is LateRMSNorm


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norm_that_does_more_than_its_name_says_stays(dtype):
    model = of_random_weight(GemmaRMSNorm(48), dtype)
    fuse_norms(model, dtype)
    assert type(model["norm"]) is GemmaRMSNorm


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norm_whose_answer_is_of_another_type_stays(dtype):
    model = nn.ModuleDict({"norm": LateRMSNorm(48)})  # all ones, in float32
    fuse_norms(model, dtype)
    assert model["norm"](torch.ones(1, 1, 48, dtype=dtype)).dtype == dtype


class NarrowRMSNorm(LlamaRMSNorm):
    """Answers in its weight's type, whatever it is given."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden_states).to(self.weight.dtype)


def test_norm_that_answers_in_its_weights_type_can_be_fused():
    model = of_random_weight(NarrowRMSNorm(48), torch.bfloat16)
    fuse_norms(model, torch.bfloat16)
    assert type(model["norm"]) is FusedRMSNorm


class ScaledRMSNorm(LlamaRMSNorm):
    """Weighs before it divides: only ``eps`` tells, where the weights are all alike."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return super().forward(2 * hidden_states)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norm_that_adds_eps_to_something_else_stays(dtype):
    model = nn.ModuleDict({"norm": ScaledRMSNorm(48).to(dtype)})
    fuse_norms(model, dtype)
    assert type(model["norm"]) is ScaledRMSNorm


class HeadsRMSNorm(LlamaRMSNorm):
    """One weight for each head."""

    def __init__(self) -> None:
        super().__init__(12)
        self.weight = nn.Parameter(torch.ones(4, 12))


def test_norm_with_weights_by_head_stays():
    model = nn.ModuleDict({"norm": HeadsRMSNorm()})
    fuse_norms(model, torch.float32)
    assert type(model["norm"]) is HeadsRMSNorm


def test_norms_of_a_loaded_model_are_fused(load):
    norms = [type(module) for module in load("llama")._model.modules()]
    assert norms.count(CompiledRMSNorm) == 5  # two a layer, and the last one
    assert LlamaRMSNorm not in norms


class Doubler(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return 2 * inputs


class Nest(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.alone = nn.Identity()
        self.in_order = nn.Sequential(nn.Identity(), nn.Identity())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.in_order(self.alone(inputs))
        return outputs


def test_replacements_are_called_wherever_they_stand():
    model = Nest()
    replace(model, lambda module: Doubler() if isinstance(module, nn.Identity) else None)
    assert model(torch.ones(())) == 8
    assert sum(isinstance(module, Doubler) for module in model.modules()) == 3


@pytest.mark.skipif(not MAPPED_FILES.exists(), reason="only Linux tells what is mapped")
@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="no layers are laid out anew here"
)
def test_weights_that_were_laid_out_anew_leave_memory(folders, architecture, tmp_path):
    folder = tmp_path / "half"
    shutil.copytree(folders[architecture], folder)
    plain = AutoModelForCausalLM.from_pretrained(folder)
    plain.to(torch.bfloat16).save_pretrained(folder)
    del plain
    model = TransformersModel.load(str(folder), dtype="bfloat16", device="cpu", cache_bytes=1 << 16)
    gc.collect()
    assert str(folder) not in MAPPED_FILES.read_text()
    assert model.description.name == "half"  # it is still there
