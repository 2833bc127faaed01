"""The wheel, which is built once for all files and workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock
from tests.install.environments import build_tools, build_wheel


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Of all workers."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def wheel(shared_folder: Path) -> Path:
    """Whoever asks first builds it, the others wait."""
    tools = build_tools(shared_folder)
    folder = shared_folder / "wheel"
    with FileLock(f"{folder}.lock"):
        folder.mkdir(exist_ok=True)
        return next(folder.glob("specmesh-*.whl"), None) or build_wheel(folder, tools)
