"""The options for running a model, translated to vLLM's configuration."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.vllm.loading.engine_options import given_on
from specmesh.inference.models.vllm.ray.cluster import join_ray
from specmesh.inference.reasons import reason_of
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


def check_engine_options(command_line: str, *, cache_bytes: int | None, num_threads: int) -> None:
    """Read ``--engine-options`` before the model is, which takes long. Raises ``ModelNotLoadable``
    unless vLLM has all of them and specmesh sets none; only with the model can vLLM judge their
    values."""
    if command_line:
        _prepare(num_threads)
        given_on(command_line, cache_bytes)


def engine_config(options: CoreOptions, **scoring: Any) -> Any:
    """Return vLLM's configuration; ``scoring`` are the arguments that make it return logits.

    Sets the environment and imports vLLM. Raises ``ModelNotLoadable`` for a device that the
    installed vLLM does not support, and for options that it rejects.
    """
    _prepare(options.num_threads)
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform

    if current_platform.device_type != options.device_type:
        raise ModelNotLoadable(
            f"--device is of type {options.device_type!r}, but the installed vLLM "
            f"computes on {current_platform.device_type!r}"
        )
    is_cpu = current_platform.is_cpu()
    given = given_on(options.engine_options, options.cache_bytes)
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
    try:
        config = EngineArgs(**{**arguments, **given, **scoring}).create_engine_config()
    except Exception as error:  # of many types
        if not given:
            raise
        raise ModelNotLoadable(
            f"--engine-options: vLLM cannot load {options.model!r} with them: {reason_of(error)}"
        ) from error
    if "hf_overrides" in given:
        _check_context(config.model_config.hf_text_config, options.context_tokens)
    return config


def _check_context(text_config: Any, context_tokens: int) -> None:
    """Raise ``ModelNotLoadable`` if vLLM's configuration of the model has another context than its
    files, whose context callers are told."""
    length = getattr(text_config, "max_position_embeddings", context_tokens)
    if length != context_tokens:
        raise ModelNotLoadable(
            f"--engine-options: --hf-overrides makes the context {length} tokens long, not "
            f"{context_tokens}; change max_position_embeddings in the model's config.json instead"
        )


def _ray_executor(is_cpu: bool) -> Any:
    """Join a Ray cluster and return the executor that vLLM shall use there."""
    join_ray({name: os.environ[name] for name in WORKERS_ENVIRONMENT})
    if not is_cpu:
        return "ray"
    from specmesh.inference.models.vllm.ray.on_cpus import RayOnCpus

    return RayOnCpus


def _prepare(num_threads: int) -> None:
    """Set the environment variables that vLLM and its processes read, before vLLM is imported."""
    os.environ.update(ENVIRONMENT)
    # Otherwise each process would need a NUMA node of its own.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ["OMP_NUM_THREADS"] = str(num_threads)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    take_over("torch")
