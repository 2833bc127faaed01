"""Which of vLLM's names that the backend uses are gone: run in vLLM's environment, prints a list.

What is imported, called by keyword or called of a base class is read from the backend's sources;
what is used of objects that vLLM hands out is listed here.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

BACKEND = Path(__file__).parents[2] / "services/specmesh/inference/models/vllm"

MEMBERS = {
    "vllm.v1.worker.gpu_model_runner.GPUModelRunner": (
        "_update_states",
        "_prepare_inputs",
        "_sample",
        "sample_tokens",
    ),
    "vllm.v1.engine.core.EngineCore": (
        "add_request",
        "abort_requests",
        "collective_rpc",
        "shutdown",
    ),
    "vllm.v1.executor.abstract.Executor": (
        "get_class",
        "execute_model",
        "sample_tokens",
        "register_failure_callback",
    ),
    "vllm.v1.worker.gpu_input_batch.CachedRequestState": ("prompt_token_ids", "output_token_ids"),
    "vllm.v1.core.sched.scheduler.Scheduler": (
        "schedule",
        "update_from_output",
        "_update_request_with_output",
        "_handle_stopped_request",
    ),
    "vllm.v1.core.single_type_kv_cache_manager.FullAttentionManager": ("allocate_new_blocks",),
    "vllm.v1.core.kv_cache_manager.KVCacheManager": ("create_kv_cache_blocks", "get_blocks"),
    "vllm.v1.core.block_pool.BlockPool": (
        "get_new_blocks",
        "get_num_free_blocks",
        "evict_blocks",
        "free_blocks",
        "touch",
    ),
    "vllm.v1.core.kv_cache_utils.KVCacheBlock": (
        "block_id",
        "block_hash",
        "ref_cnt",
        "set_block_hash",
    ),
    "vllm.v1.core.sched.output.SchedulerOutput": (
        "num_scheduled_tokens",
        "scheduled_new_reqs",
        "scheduled_cached_reqs",
        "finished_req_ids",
    ),
    "vllm.v1.core.sched.output.CachedRequestData": ("req_ids", "num_computed_tokens"),
    "vllm.v1.core.sched.output.NewRequestData": ("req_id", "num_computed_tokens"),
    "vllm.v1.outputs.ModelRunnerOutput": ("pooler_output", "req_id_to_index"),
    "vllm.v1.request.Request": ("update_block_hashes",),
}


def lost() -> list[str]:
    """What is missing."""
    files = set(BACKEND.rglob("*.py"))
    if find_spec("ray") is None:  # without it vLLM's own module cannot be imported
        files.remove(BACKEND / "ray" / "on_cpus.py")
    trees = [ast.parse(file.read_text()) for file in sorted(files)]
    imported = {name: path for tree in trees for name, path in _imported(tree)}
    missing = [path for path in {*imported.values(), *MEMBERS} if _find(path) is None]
    for tree in trees:
        for node in ast.walk(tree):
            missing += _lost_by(node, imported)
    for path, names in MEMBERS.items():
        owner = _find(path)
        missing += [f"{path}.{name}" for name in names if owner and not _has(owner, name)]
    return sorted(set(missing))


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What is imported of vLLM: names, and where they are."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "vllm":
            yield from (
                (each.asname or each.name, f"{node.module}.{each.name}") for each in node.names
            )


def _lost_by(node: ast.AST, imported: dict[str, str]) -> Iterator[str]:
    """What a call names that isn't a parameter, and what a class calls of its base that isn't
    there."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in imported:
        yield from _unknown_keywords(imported[node.func.id], node)
    if isinstance(node, ast.ClassDef):
        for base in node.bases:
            path = imported.get(base.id) if isinstance(base, ast.Name) else None
            if path and (owner := _find(path)):
                for call in ast.walk(node):
                    name = _of_base(call)
                    if name == "__init__":
                        yield from _unknown_keywords(path, call)
                    elif name and not _has(owner, name):
                        yield f"{path}.{name}"


def _of_base(node: ast.AST) -> str | None:
    """The method that it calls by ``super()``, if it does."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr if ast.unparse(node.func.value) == "super()" else None
    return None


def _unknown_keywords(path: str, call: Any) -> Iterator[str]:
    """Those of a ``call`` of what is at ``path``."""
    if (owner := _find(path)) is None:
        return
    known = inspect.signature(owner).parameters
    if not any(each.kind is each.VAR_KEYWORD for each in known.values()):
        for keyword in call.keywords:
            if keyword.arg and keyword.arg not in known:
                yield f"{path}({keyword.arg}=)"


def _find(path: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name, None)
    except Exception:  # whatever a module of another version raises
        return None


def _has(owner: Any, name: str) -> bool:
    """As an attribute, or as a field that a class declares."""
    declared = {
        field for each in inspect.getmro(owner) for field in getattr(each, "__annotations__", {})
    }
    return hasattr(owner, name) or name in declared


if __name__ == "__main__":
    print(json.dumps(lost()))  # noqa: T201 - for __main__.py
