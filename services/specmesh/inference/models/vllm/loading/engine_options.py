"""The options of vLLM's own command line that ``--engine-options`` gives, and what they change."""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
from typing import Any, NoReturn

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.reasons import reason_of

US = "specmesh, which needs it as it is"
OURS = {
    "model": "--model",
    "revision": "--revision",
    "tokenizer_revision": "--revision",
    "dtype": "--dtype",
    "tensor_parallel_size": "--tensor-parallel-size",
    "kv_cache_memory_bytes": "--cache-bytes",
    "max_model_len": US,
    "runner": US,
    "convert": US,
    "enable_prefix_caching": US,
    "async_scheduling": US,
    "scheduler_cls": US,
    "worker_cls": US,
    "worker_extension_cls": US,
    "generation_config": US,
    "skip_tokenizer_init": US,
    "speculative_config": US,
    "spec_method": US,
    "spec_model": US,
    "spec_tokens": US,
    "kv_transfer_config": US,
    "kv_offloading_size": US,
    "kv_offloading_backend": US,
    "data_parallel_size": US,
    "enable_lora": US,
}
"""vLLM options that ``engine_options`` may not set, and what sets them instead."""

INSTEAD_OF_CACHE_BYTES = {"gpu_memory_utilization": "--cache-bytes"}
"""Likewise, if the bytes for KV are given: vLLM then ignores these. On a CPU they always are."""

HARMLESS = {
    "pipeline_parallel_size",
    "distributed_executor_backend",
    "enable_expert_parallel",
    "gpu_memory_utilization",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_num_scheduled_tokens",
    "max_num_active_seqs",
    "max_num_queued_reqs",
    "max_num_queued_tokens",
    "watermark",
    "shutdown_timeout",
    "long_prefill_token_threshold",
    "block_size",
    "num_gpu_blocks_override",
    "enforce_eager",
    "compilation_config",
    "optimization_level",
    "attention_backend",
    "disable_custom_all_reduce",
    "safetensors_load_strategy",
    "download_dir",
    "max_parallel_loading_workers",
    "seed",
    "hf_token",
    "numa_bind",
    "distributed_timeout_seconds",
    "disable_cascade_attn",
    "disable_log_stats",
    "served_model_name",
    "scheduling_policy",
    "max_logprobs",
    "cudagraph_capture_sizes",
    "max_cudagraph_capture_size",
    "all2all_backend",
    "trust_remote_code",
    "cpu_offload_gb",
    "nnodes",
    "node_rank",
    "master_addr",
    "master_port",
    "enable_chunked_prefill",
    "stream_interval",
    "prefix_caching_hash_algo",
    "use_tqdm_on_load",
}
"""vLLM options that change the model's logits by no more than rounding errors."""

SAME = {"load_format": ("hf", "safetensors"), "config_format": ("hf",)}
"""Values of options that specmesh sets, though others may be given, with which vLLM reads the same
weights."""


def changes_by(command_line: str) -> dict[str, Any]:
    """Return the options that may turn the weights into a different model, as ``--quantization``
    does, by name: none that is harmless, or says what is so without it."""
    if not command_line:
        return {}
    defaults = {action.dest: action.default for action in _parser()._actions}
    return {
        name: value
        for name, value in given_on(command_line, None).items()
        if name not in HARMLESS and value not in SAME.get(name, [defaults[name]])
    }


def digest_with(weights_digest: str, changes: dict[str, Any]) -> str:
    """Return ``weights_digest``, or another digest if there are ``changes``: the same one in
    whatever order options, and the keys of their JSON, were given."""
    if not changes:
        return weights_digest
    named = json.dumps([weights_digest, changes], sort_keys=True, default=repr)
    return hashlib.sha256(named.encode()).hexdigest()


def given_on(command_line: str, cache_bytes: int | None) -> dict[str, Any]:
    """Return the options on ``command_line`` by their names in vLLM's ``EngineArgs``, read by
    vLLM's own parser. Raises ``ModelNotLoadable`` for those that specmesh sets, ``cache_bytes``
    among them."""
    if not command_line:
        return {}
    parser = _parser()
    for action in parser._actions:
        action.default = argparse.SUPPRESS  # leave options out that aren't given
    try:
        given: dict[str, Any] = vars(parser.parse_args(shlex.split(command_line)))
    except ModelNotLoadable:
        raise
    except Exception as error:  # of many types, as when a file of --config cannot be read
        raise ModelNotLoadable(f"--engine-options: {reason_of(error)}") from error
    ours = OURS if cache_bytes is None else OURS | INSTEAD_OF_CACHE_BYTES
    for name in given.keys() & ours.keys():
        raise ModelNotLoadable(f"--engine-options: {flag(name)} is set by {ours[name]}")
    return given


def flag(name: str) -> str:
    """Return the option ``name`` of vLLM's ``EngineArgs`` as it is written on a command line."""
    return f"--{name.replace('_', '-')}"


def _parser() -> Any:
    """Return vLLM's own parser."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):  # type: ignore[misc] # vLLM is in another environment
        def error(self, message: str) -> NoReturn:
            raise ModelNotLoadable(f"--engine-options: {message}")

    return EngineArgs.add_cli_args(Parser(add_help=False, allow_abbrev=False))
