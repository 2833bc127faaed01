"""Builds the gRPC stubs from ``protos/`` whenever the project is installed or packed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProtoBuildHook(BuildHookInterface[Any]):
    """Runs protoc into ``stubs/``, which is never committed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Build the stubs; called by hatchling before it collects files."""
        if self.target_name == "wheel":
            build_stubs(Path(self.root))


def build_stubs(root: Path) -> None:
    """Write ``*_pb2*.py[i]`` below ``stubs/specmesh``."""
    import grpc_tools  # type: ignore[import-untyped]
    from grpc_tools import protoc  # type: ignore[import-untyped]

    stubs = root / "stubs"
    stubs.mkdir(exist_ok=True)
    sources = sorted(str(path) for path in (root / "protos").rglob("*.proto"))
    outputs = [f"--{kind}_out=quiet:{stubs}" for kind in ("mypy", "mypy_grpc")]
    outputs += [f"--{kind}_out={stubs}" for kind in ("python", "grpc_python")]
    # protoc looks for mypy-protobuf's plugins on the path, where a venv need not be; those of an
    # isolated build are there, and come first.
    os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], str(Path(sys.executable).parent)])
    # The second has google/protobuf/descriptor.proto.
    includes = [f"-I{root / 'protos'}", f"-I{Path(grpc_tools.__file__).parent / '_proto'}"]
    if protoc.main(["protoc", *includes, *outputs, *sources]) != 0:
        raise RuntimeError("protoc could not build the stubs from protos/")
    for package in ("v1", "mesh/v1alpha1"):
        (stubs / "specmesh" / package / "py.typed").touch()


if __name__ == "__main__":
    build_stubs(Path(__file__).parent)
