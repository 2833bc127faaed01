"""The description of a quantized model, read from its files; only vLLM loads its weights.

transformers needs packages of its own, or a GPU, for most quantized weights, and computes different
logits from them than vLLM does. So it loads none: the digest is that of the stored tensors, and
vLLM's logits are not checked.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME

from specmesh.inference.model import ModelDescription, ModelNotLoadable
from specmesh.inference.models.digests import digest_of_tensors
from specmesh.inference.models.loading import ModelFiles, quantizations_of

_WEIGHTS = "*.safetensors"
_ELSEWHERE = "*/*"
"""Files in folders of a repository, which vLLM doesn't read."""


def describe_quantized(
    files: ModelFiles, dtype: str, chat_template: str | None
) -> ModelDescription:
    """Return the description of the model that peers get. Raises ``ModelNotLoadable``."""
    try:
        num_parameters = _num_parameters(files.text_config)
        digest = digest_of_tensors(_stored(_weights_of(files.name, files.revision)), files.config)
    except (OSError, ValueError, KeyError, AttributeError, RuntimeError, SafetensorError) as error:
        raise ModelNotLoadable(
            f"cannot read the quantized weights of {files.name!r}: {error}"
        ) from error
    return files.describe_as(
        num_parameters=num_parameters,
        backend="vllm",
        weights_digest=digest,
        dtype=dtype,
        chat_template=chat_template,
    )


def _weights_of(name: str, revision: str | None) -> list[Path]:
    """Return the files that vLLM reads: those that an index names, or all if there is no index. The
    files of a Hugging Face id are downloaded."""
    folder = Path(name)
    if folder.exists():
        listed = _listed_in(folder)
    else:
        index = SAFE_WEIGHTS_INDEX_NAME
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=index))
        listed = _listed_in(folder)
        wanted = listed or [_WEIGHTS]
        snapshot_download(
            name, revision=revision, allow_patterns=wanted, ignore_patterns=_ELSEWHERE
        )
    return [folder / each for each in listed] if listed else sorted(folder.glob(_WEIGHTS))


def _listed_in(folder: Path) -> list[str]:
    index = folder / SAFE_WEIGHTS_INDEX_NAME
    if not index.exists():
        return []
    return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))


def _stored(paths: Sequence[Path]) -> Iterator[tuple[str, Any]]:
    """Yield all tensors of all files, sorted by name, with their names."""
    with ExitStack() as stack:
        files = [stack.enter_context(safe_open(path, framework="pt")) for path in paths]
        if not files:
            raise FileNotFoundError(f"it has no {_WEIGHTS}")
        holders = [(name, file) for file in files for name in file.keys()]  # noqa: SIM118
        for name, file in sorted(holders, key=lambda holder: holder[0]):
            yield name, file.get_tensor(name)


def _num_parameters(config: Any) -> int:
    """Return the number of parameters of the same model before quantization."""
    plain = copy.deepcopy(config)
    for part, field in quantizations_of(plain):
        delattr(part, field)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(plain)  # type: ignore[no-untyped-call]
    return int(model.num_parameters())
