"""How a model is to be run, as vLLM's own configuration."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from specmesh.inference.model import ModelNotLoadable

ENVIRONMENT = {
    "VLLM_CONFIGURE_LOGGING": "0",  # its loggers are for ours: standard error is for JSON lines
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # ``rows`` knows the first
    # It keeps room in the context for a token that is sampled, which here none is.
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
}
"""vLLM reads these when it is imported."""

CPU_BLOCK_TOKENS = 32
"""The least that its attention on CPUs has kernels for."""


@dataclass(frozen=True, slots=True)
class CoreOptions:
    """How a model is to be run.

    ``device_type`` is torch's word. ``cache_bytes`` of memory are for KV (None: what vLLM finds
    free on a GPU). A step takes up to ``step_tokens``, of one long prefix ``chunk_tokens`` unless
    it is alone. ``tensor_parallel`` processes share each layer, with ``num_threads`` each.
    ``engine_options`` are vLLM's own, each as NAME=VALUE, and take precedence.
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
    engine_options: Sequence[str] = ()


OURS = {
    "model": "--model",
    "dtype": "--dtype",
    "tensor_parallel_size": "--tensor-parallel-size",
    "kv_cache_memory_bytes": "--cache-bytes",
    "max_model_len": None,
    "enable_prefix_caching": None,
    "async_scheduling": None,
    "scheduler_cls": None,
    "worker_cls": None,
    "worker_extension_cls": None,
    "generation_config": None,
    "skip_tokenizer_init": None,
    "speculative_config": None,
    "kv_transfer_config": None,
    "data_parallel_size": None,
    "enable_lora": None,
}
"""Options of vLLM's that aren't for users: by which of ours they are set, or that we need them as
they are."""


def engine_config(options: CoreOptions, **scoring: Any) -> Any:
    """vLLM's configuration; ``scoring`` is what makes it give logits.

    Imports vLLM, for which it sets the environment. Raises ``ModelNotLoadable`` for a device that
    this vLLM isn't for, and for options that it refuses.
    """
    _set_environment(options.num_threads)
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform

    if current_platform.device_type != options.device_type:
        raise ModelNotLoadable(
            f"--device is of type {options.device_type!r}, and the vLLM that is installed "
            f"computes on {current_platform.device_type!r}"
        )
    is_cpu = current_platform.is_cpu()
    given = _given(options.engine_options)
    num_processes = options.tensor_parallel * given.get("pipeline_parallel_size", 1)
    arguments = {
        "model": options.model,
        "dtype": options.dtype,
        "max_model_len": options.context_tokens + 1,
        "max_num_seqs": options.max_batch,
        "max_num_batched_tokens": options.step_tokens,
        "long_prefill_token_threshold": options.chunk_tokens,
        "kv_cache_memory_bytes": options.cache_bytes,
        "block_size": CPU_BLOCK_TOKENS if is_cpu else None,
        "enforce_eager": is_cpu,  # compiling there takes a compiler and minutes
        "enable_prefix_caching": True,
        "async_scheduling": False,
        "tensor_parallel_size": options.tensor_parallel,
        "distributed_executor_backend": "uni" if num_processes == 1 else "mp",
        "generation_config": "vllm",
        "skip_tokenizer_init": True,
        "use_tqdm_on_load": False,
    }
    return EngineArgs(**{**arguments, **given, **scoring}).create_engine_config()


def _given(pairs: Sequence[str]) -> dict[str, Any]:
    """What users have set, by the names of vLLM's ``EngineArgs``, of the types it has for them."""
    if not pairs:
        return {}
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):  # type: ignore[misc] # vLLM is in another environment
        def error(self, message: str) -> NoReturn:
            raise ModelNotLoadable(f"--engine-option: {message}")

    parser = EngineArgs.add_cli_args(Parser(prog="vllm", add_help=False, allow_abbrev=False))
    given = {}
    for pair in pairs:
        flag, name = _flag(pair)
        namespace = parser.parse_args([flag])
        if not hasattr(namespace, name):
            raise ModelNotLoadable(f"--engine-option: vLLM has no option {pair.partition('=')[0]}")
        given[name] = getattr(namespace, name)
    return given


def _flag(pair: str) -> tuple[str, str]:
    """How vLLM's own command line has NAME=VALUE, and its field. Raises ``ModelNotLoadable``."""
    option, equals, value = pair.partition("=")
    option = option.removeprefix("--").replace("_", "-")
    name = option.replace("-", "_")
    if not option or not equals:
        raise ModelNotLoadable(f"--engine-option: {pair!r} is not NAME=VALUE")
    if name in OURS:
        instead = OURS[name]
        raise ModelNotLoadable(
            f"--engine-option: {option} is set by {instead or 'specmesh as it needs it'}"
        )
    match value.lower():
        case "true":
            return f"--{option}", name
        case "false":
            return f"--no-{option}", name
    return f"--{option}={value}", name


def _set_environment(num_threads: int) -> None:
    """What vLLM and its processes read."""
    os.environ.update(ENVIRONMENT)
    # Else each process has to have a NUMA node to itself.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ["OMP_NUM_THREADS"] = str(num_threads)
