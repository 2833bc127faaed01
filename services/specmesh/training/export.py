"""Export of a model as a Hugging Face folder: bf16 safetensors, config and tokenizer."""

from __future__ import annotations

import copy
from pathlib import Path

from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaForCausalLM

from specmesh.training import tokenizer as tokenizers
from specmesh.training.pair import CONTEXT_TOKENS
from specmesh.training.tokenizer import END_OF_TEXT_ID


def export(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    """Write ``model``, rounded to bf16, and its ``tokenizer`` into ``folder``.

    The folder loads through AutoModelForCausalLM and AutoTokenizer like any other model.
    """
    rounded = copy.deepcopy(model)
    rounded.bfloat16()
    rounded.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        do_sample=False,
        bos_token_id=END_OF_TEXT_ID,
        eos_token_id=END_OF_TEXT_ID,
        pad_token_id=END_OF_TEXT_ID,
    )
    rounded.save_pretrained(folder)
    # Otherwise only its owner could read it, and a container runs as another user.
    (folder / "model.safetensors").chmod(0o644)
    tokenizers.save(tokenizer, folder, CONTEXT_TOKENS)
