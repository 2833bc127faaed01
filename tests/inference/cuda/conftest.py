"""Models laid out for a GPU, on a CPU: with plain operations in place of kernels and of graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.inference.cuda import reference_kernels
from torch import nn

from specmesh.inference.models import transformers_model
from specmesh.inference.models.transformers_model import TransformersModel

assert reference_kernels  # which registers them


@pytest.fixture(autouse=True)
def _laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers_model, "_can_have_graphs", lambda *_: True)
    monkeypatch.setattr(nn.Module, "compile", lambda *_, **__: None)


@pytest.fixture
def load_target(folders: dict[str, Path]) -> Callable[[], TransformersModel]:
    return lambda: TransformersModel.load(
        str(folders["llama"]), dtype="float32", device="cpu", cache_bytes=1 << 20
    )
