"""The options for running a model, translated to vLLM's configuration."""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
from dataclasses import dataclass
from typing import Any, NoReturn

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.vllm.ray.cluster import join_ray
from specmesh.serving.process.logging import take_over

ENVIRONMENT = {
    "VLLM_CONFIGURE_LOGGING": "0",  # specmesh logs for it: standard error has JSON lines
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # ``rows`` is written for V1
    # vLLM reserves room in the context for a sampled token, and here no token is sampled.
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
}
"""Environment variables that vLLM reads when it is imported."""

QUIET = {"PYTHONWARNINGS": "ignore", "TORCH_CPP_LOG_LEVEL": "ERROR", "TORCH_LOGS": "-all"}
"""Environment variables for vLLM's own processes, which would write these warnings as plain text.
In this process they have no effect, since Python and torch have already read them."""

WORKERS_ENVIRONMENT = (*ENVIRONMENT, *QUIET, "VLLM_CPU_OMP_THREADS_BIND", "OMP_NUM_THREADS")
"""The variables that workers on other nodes need, too."""

CPU_BLOCK_TOKENS = 32
"""The smallest block for which vLLM has CPU attention kernels."""


@dataclass(frozen=True, slots=True)
class CoreOptions:
    """Options for running a model.

    ``device_type`` is torch's name for the type. ``cache_bytes`` of memory are for KV (None: what
    vLLM finds free on a GPU). A step computes up to ``step_tokens``, and up to ``chunk_tokens`` of
    one long prefix unless it is alone. ``tensor_parallel`` processes share each layer, with
    ``num_threads`` each. ``engine_options`` are options of vLLM's command line, and take
    precedence.
    """

    model: str
    dtype: str
    device_type: str
    context_tokens: int
    cache_bytes: int | None
    max_batch: int
    step_tokens: int
    chunk_tokens: int
    tensor_parallel: int
    num_threads: int
    engine_options: str = ""
    revision: str | None = None
    """The revision of a Hugging Face id; None means its main branch."""


US = "specmesh, which needs it as it is"
OURS = {
    "model": "--model",
    "revision": "--revision",
    "tokenizer_revision": "--revision",
    "dtype": "--dtype",
    "tensor_parallel_size": "--tensor-parallel-size",
    "kv_cache_memory_bytes": "--cache-bytes",
    "max_model_len": US,
    "enable_prefix_caching": US,
    "async_scheduling": US,
    "scheduler_cls": US,
    "worker_cls": US,
    "worker_extension_cls": US,
    "generation_config": US,
    "skip_tokenizer_init": US,
    "speculative_config": US,
    "kv_transfer_config": US,
    "data_parallel_size": US,
    "enable_lora": US,
}
"""vLLM options that ``engine_options`` may not set, and what sets them instead."""


HARMLESS = {
    "pipeline_parallel_size",
    "distributed_executor_backend",
    "enable_expert_parallel",
    "gpu_memory_utilization",
    "max_num_seqs",
    "max_num_batched_tokens",
    "long_prefill_token_threshold",
    "max_num_partial_prefills",
    "max_long_partial_prefills",
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
}
"""vLLM options that change the model's logits by no more than rounding errors."""


def digest_with(weights_digest: str, command_line: str) -> str:
    """Return ``weights_digest``, or another digest if vLLM options turn the weights into a
    different model, as ``--quantization`` does."""
    changes = {name: v for name, v in _given(command_line).items() if name not in HARMLESS}
    if not changes:
        return weights_digest
    named = "\0".join([weights_digest, *(f"{name}={changes[name]!r}" for name in sorted(changes))])
    return hashlib.sha256(named.encode()).hexdigest()


def engine_config(options: CoreOptions, **scoring: Any) -> Any:
    """Return vLLM's configuration; ``scoring`` are the arguments that make it return logits.

    Sets the environment and imports vLLM. Raises ``ModelNotLoadable`` for a device that the
    installed vLLM does not support, and for options that it rejects.
    """
    _set_environment(options.num_threads)
    take_over("torch")
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform

    if current_platform.device_type != options.device_type:
        raise ModelNotLoadable(
            f"--device is of type {options.device_type!r}, but the installed vLLM "
            f"computes on {current_platform.device_type!r}"
        )
    is_cpu = current_platform.is_cpu()
    given = _given(options.engine_options)
    num_processes = options.tensor_parallel * given.get("pipeline_parallel_size", 1)
    if given.get("distributed_executor_backend") == "ray":
        given |= {"distributed_executor_backend": _ray_executor(is_cpu)}
    arguments = {
        "model": options.model,
        "revision": options.revision,
        "tokenizer_revision": options.revision,
        "dtype": options.dtype,
        "max_model_len": options.context_tokens + 1,
        "max_num_seqs": options.max_batch,
        "max_num_batched_tokens": options.step_tokens,
        "long_prefill_token_threshold": min(options.chunk_tokens, options.context_tokens),
        "kv_cache_memory_bytes": options.cache_bytes,
        "block_size": CPU_BLOCK_TOKENS if is_cpu else None,
        "enforce_eager": is_cpu,  # compiling for CPUs needs a compiler and takes minutes
        "enable_prefix_caching": True,
        "async_scheduling": False,
        "tensor_parallel_size": options.tensor_parallel,
        "distributed_executor_backend": "uni" if num_processes == 1 else "mp",
        "generation_config": "vllm",
        # Otherwise vLLM prefers files in Mistral's format, which the digest does not cover.
        "config_format": "hf",
        "load_format": "hf",
        "skip_tokenizer_init": True,
        "use_tqdm_on_load": False,
    }
    return EngineArgs(**{**arguments, **given, **scoring}).create_engine_config()


def _ray_executor(is_cpu: bool) -> Any:
    """Join a Ray cluster and return the executor that vLLM shall use there."""
    join_ray({name: os.environ[name] for name in WORKERS_ENVIRONMENT})
    if not is_cpu:
        return "ray"
    from specmesh.inference.models.vllm.ray.on_cpus import RayOnCpus

    return RayOnCpus


def _given(command_line: str) -> dict[str, Any]:
    """Return the options on ``command_line`` by their names in vLLM's ``EngineArgs``, read by
    vLLM's own parser."""
    if not command_line:
        return {}
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):  # type: ignore[misc] # vLLM is in another environment
        def error(self, message: str) -> NoReturn:
            raise ModelNotLoadable(f"--engine-options: {message}")

    parser = EngineArgs.add_cli_args(Parser(add_help=False, allow_abbrev=False))
    for action in parser._actions:
        action.default = argparse.SUPPRESS  # leave options out that aren't given
    try:
        words = shlex.split(command_line)
    except ValueError as error:
        raise ModelNotLoadable(f"--engine-options: {error}") from error
    given: dict[str, Any] = vars(parser.parse_args(words))
    for name in given.keys() & OURS.keys():
        raise ModelNotLoadable(
            f"--engine-options: --{name.replace('_', '-')} is set by {OURS[name]}"
        )
    return given


def _set_environment(num_threads: int) -> None:
    """Set the environment variables that vLLM and its processes read."""
    os.environ.update(ENVIRONMENT)
    # Otherwise each process would need a NUMA node of its own.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ["OMP_NUM_THREADS"] = str(num_threads)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
