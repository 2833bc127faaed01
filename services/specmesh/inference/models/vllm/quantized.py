"""What the files of a quantized model tell of it, for vLLM alone to load.

transformers needs packages of its own, or a GPU, for most quantized weights, and computes something
else of them than vLLM does. So it loads none: the digest is that of the tensors as they are stored,
and there is nothing to hold vLLM's logits against.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, GenerationConfig

from specmesh.inference.model import ModelDescription, ModelNotLoadable
from specmesh.inference.models.digests import digest_of_tensors
from specmesh.inference.models.loading import ModelFiles

_WEIGHTS = "*.safetensors"
_AGAIN = "consolidated*"
"""The same weights once more, in Mistral's own format."""


def describe_quantized(
    files: ModelFiles, dtype: str, chat_template: str | None
) -> ModelDescription:
    """What peers are told of the model. Raises ``ModelNotLoadable``."""
    try:
        digest = digest_of_tensors(_stored(_folder_of(files.name)), files.config)
        num_parameters = _num_parameters(files.config)
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelNotLoadable(
            f"cannot read the quantized weights of {files.name!r}: {error}"
        ) from error
    return files.describe_as(
        generation_config=_generation_config(files),
        num_parameters=num_parameters,
        backend="vllm",
        weights_digest=digest,
        dtype=dtype,
        chat_template=chat_template,
    )


def _folder_of(name: str) -> Path:
    """Where its weights lie; those of a Hugging Face id are fetched, as vLLM would."""
    if Path(name).exists():
        return Path(name)
    return Path(snapshot_download(name, allow_patterns=_WEIGHTS, ignore_patterns=_AGAIN))


def _stored(folder: Path) -> Iterator[tuple[str, Any]]:
    """All tensors by their names, sorted, from however many files."""
    with ExitStack() as stack:
        files = [
            stack.enter_context(safe_open(path, framework="pt"))
            for path in sorted(folder.glob(_WEIGHTS))
            if not path.match(_AGAIN)
        ]
        if not files:
            raise FileNotFoundError(f"there are no {_WEIGHTS} in it")
        holders = [(name, file) for file in files for name in file.keys()]  # noqa: SIM118
        for name, file in sorted(holders, key=lambda holder: holder[0]):
            yield name, file.get_tensor(name)


def _num_parameters(config: Any) -> int:
    """Of the same model with weights as they are computed with."""
    plain = copy.deepcopy(config)
    del plain.quantization_config
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(plain)  # type: ignore[no-untyped-call]
    return int(model.num_parameters())


def _generation_config(files: ModelFiles) -> Any:
    try:
        return GenerationConfig.from_pretrained(files.name)
    except OSError:  # there is no such file
        return GenerationConfig.from_model_config(files.config)
