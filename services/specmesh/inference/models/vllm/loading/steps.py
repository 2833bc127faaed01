"""The steps in which vLLM loads a model, and the check that it computes what transformers does."""

from __future__ import annotations

from specmesh.decoding.trees.tree import EMPTY
from specmesh.inference.model import (
    Cancellation,
    DeviceLost,
    LanguageModel,
    ModelDescription,
    ModelNotLoadable,
)
from specmesh.inference.models.loading import read_files
from specmesh.inference.models.vllm.core import Core
from specmesh.inference.models.vllm.loading.probe import PlainLogits
from specmesh.inference.models.vllm.loading.quantized import describe_quantized
from specmesh.inference.models.vllm.options import CoreOptions
from specmesh.inference.reasons import reason_of

FIRST_TOKENS = (0, 1)
"""Tokens of a first forward pass, which shows whether vLLM has kernels for the model on this
device."""


def read_plain(
    name: str, revision: str | None, dtype: str, chat_template: str | None
) -> tuple[ModelDescription, PlainLogits | None]:
    """Return the model's description and the logits that transformers computes (None if the model
    is quantized). transformers' copy of the model is freed, so that vLLM has the memory."""
    files = read_files(name, revision)
    if files.is_quantized:
        return describe_quantized(files, dtype, chat_template), None
    # "sdpa" ignores caps on attention scores, and "eager" overflows in float16.
    is_capped = getattr(files.text_config, "attn_logit_softcapping", None)
    loaded = files.load(dtype, "cpu", None, attention="eager" if is_capped else "sdpa")
    plain = PlainLogits.of(name, loaded.model)
    return loaded.describe(dtype, None, chat_template), plain


def start(options: CoreOptions) -> Core:
    """Load the model in vLLM. Raises ``ModelNotLoadable``."""
    try:
        return Core(options)
    except ModelNotLoadable:
        raise
    except Exception as error:
        raise ModelNotLoadable(f"vLLM cannot load {options.model!r}: {reason_of(error)}") from error


def check_computes(name: str, dtype: str, model: LanguageModel, plain: PlainLogits | None) -> None:
    """Raise ``ModelNotLoadable`` unless ``model`` computes ``plain``, or computes at all if that is
    None."""
    try:
        if plain is not None:
            plain.check(model)
        else:
            model.open(FIRST_TOKENS, Cancellation(), 0).score(EMPTY)
    except DeviceLost as error:
        raise ModelNotLoadable(_cannot_compute(name, dtype, error)) from error


def _cannot_compute(name: str, dtype: str, error: DeviceLost) -> str:
    """Return the reason why vLLM, which has loaded the model ``name`` in ``dtype``, cannot compute
    it."""
    what = f"vLLM cannot compute {name!r} in {dtype}"
    # vLLM uses Intel AMX kernels for weights of 8 or 4 bits if the processor has AMX. They check
    # the data type only in a forward pass.
    if "to be bfloat16 or half" in str(error):
        return f"{what}: on this processor its kernels need --dtype bfloat16 or float16 ({error})"
    return f"{what}: {error}"
