"""The memory for KV that a model's context takes, where vLLM was given less.

vLLM's own message has it in GiB with two decimals, and advice about options that specmesh sets. The
bytes are only in the frames of the functions that raised it.
"""

from __future__ import annotations

from traceback import walk_tb
from typing import Any

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.vllm.options import CoreOptions

_CHECK, _CALLER = "_check_enough_kv_cache_memory", "get_kv_cache_configs"
"""vLLM's function that raises if there is too little, and the one that calls it."""


def too_small(
    error: ValueError, options: CoreOptions, num_blocks: int | None
) -> ModelNotLoadable | None:
    """Return what to tell in place of vLLM's ``error``, if its check of the memory for KV raised
    it.

    ``num_blocks`` is the value of ``--num-gpu-blocks-override``, which takes precedence.
    """
    frames: dict[str, dict[str, Any]] = {
        frame.f_code.co_name: frame.f_locals for frame, _ in walk_tb(error.__traceback__)
    }
    if _CHECK not in frames:
        return None
    # vLLM keeps a block for itself.
    block_bytes = _block_bytes(frames[_CALLER])
    num_bytes = frames[_CHECK]["get_needed_memory"]() + block_bytes
    context = f"is too small for a context of {options.context_tokens} tokens"
    if num_blocks is not None:
        return ModelNotLoadable(
            f"--engine-options: --num-gpu-blocks-override {num_blocks} {context}: "
            f"it takes {-(-num_bytes // block_bytes)} blocks, or {num_bytes} bytes"
        )
    what = "the device's free memory" if options.cache_bytes is None else "--cache-bytes"
    return ModelNotLoadable(f"{what} {context}: it takes {num_bytes} bytes")


def _block_bytes(caller: dict[str, Any]) -> int:
    pairs = zip(caller["available_memory"], caller["check_memory"], strict=True)
    return int(max(whole - usable for whole, usable in pairs))
