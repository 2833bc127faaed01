"""Heads without a memory of the text, on disk: a folder with ``config.json`` and
``model.safetensors``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.cpu.linear import pack_linears
from specmesh.inference.models.cpu.norm import fuse_norms
from specmesh.inference.models.heads.draft_heads import DraftHeads
from specmesh.inference.models.heads.fitness import TensorsUnfit, check_finite, check_guessed
from specmesh.inference.models.heads.network import HeadNetwork, MedusaHeads, RecurrentHead
from specmesh.inference.models.heads.served import ServedHeads
from specmesh.inference.models.heads.target_ends import TargetEnds

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
GUESSED = "guessed_token_ids"
"""The tensor, beside those of the network, with the ids of the tokens that are guessed; absent for
heads that guess all tokens."""

STORED_DTYPE = torch.bfloat16

MAX_LEVELS = 256
"""The most levels, as many as a verifier may be asked to draft (``NextDraft``)."""

_Size = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class HeadsConfig:
    """The architecture of heads, and their target.

    ``target_digests`` are the target's ``ModelDescription.weights_digest`` by the data type in
    which its weights are served. ``inner_size`` is that of the block's hidden layer, 0 for Medusa
    heads, which have no such layer.
    """

    kind: Literal["medusa", "recurrent"]
    target_digests: dict[str, str]
    hidden_size: _Size
    embedding_size: _Size
    vocab_size: _Size
    inner_size: Annotated[int, Field(ge=0)]
    max_depth: Annotated[int, Field(ge=1, le=MAX_LEVELS)]

    def network(self) -> HeadNetwork:
        """Return an untrained network of these sizes."""
        if self.kind == "medusa":
            return MedusaHeads(self.hidden_size, self.max_depth)
        return RecurrentHead(self.hidden_size, self.embedding_size, self.inner_size)

    def check_target(self, folder: Path, digest: str) -> None:
        """Raise ``ModelNotLoadable`` unless ``digest`` is that of the heads' target."""
        if digest not in self.target_digests.values():
            theirs = ", ".join(f"{each} in {name}" for name, each in self.target_digests.items())
            raise ModelNotLoadable(
                f"the heads in {str(folder)!r} are for another target, with weights {theirs}, "
                f"but this target has weights {digest}"
            )

    def check_sizes(self, folder: Path, ends: TargetEnds) -> None:
        """Raise ``ModelNotLoadable`` unless the heads fit between the target's ``ends``."""
        for name in ("hidden_size", "embedding_size", "vocab_size"):
            own, theirs = getattr(self, name), getattr(ends, name)
            if own != theirs:
                raise ModelNotLoadable(
                    f"the heads in {str(folder)!r} have {name} {own}, but their target has {theirs}"
                )


_CONFIG = TypeAdapter(HeadsConfig)


def save_heads(
    config: HeadsConfig, network: HeadNetwork, guessed: Tensor | None, folder: Path
) -> None:
    """Write heads into ``folder``, rounded to bf16. ``guessed`` are token ids ``[n]``."""
    tensors = {
        name: tensor.detach().cpu().to(STORED_DTYPE).contiguous()
        for name, tensor in network.state_dict().items()
    }
    if guessed is not None:
        tensors[GUESSED] = guessed.cpu().to(torch.int32)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / WEIGHTS)
    # Otherwise only its owner could read it, and a container runs as another user.
    (folder / WEIGHTS).chmod(0o644)
    (folder / CONFIG).write_text(json.dumps(asdict(config), indent=2) + "\n", encoding="utf-8")


def load_stateless(
    folder: Path, config_json: Mapping[str, Any], target: Any, target_digest: str
) -> DraftHeads:
    """Load the heads in ``folder`` for ``target``, a model as ``read_model`` returns it, before its
    layers are packed. They compute in its data type, on its device.

    ``target_digest`` is its ``ModelDescription.weights_digest``. Raises ``ModelNotLoadable`` for
    files that can't be read, and for heads of another target.
    """
    config, tensors = _read(folder, config_json)
    config.check_target(folder, target_digest)
    config.check_sizes(folder, TargetEnds(target))
    guessed = tensors.pop(GUESSED, None)
    try:
        if guessed is not None:
            check_guessed(GUESSED, guessed, config.vocab_size)
        with torch.device("meta"):  # whatever sizes the file names
            network = config.network()
        network.load_state_dict(tensors, assign=True)
        network.to(target.device, target.dtype)
        check_finite(network.state_dict())
    except (RuntimeError, TensorsUnfit) as error:
        raise ModelNotLoadable(f"cannot load the heads in {str(folder)!r}: {error}") from error
    network.requires_grad_(requires_grad=False)
    ends = TargetEnds(target, None if guessed is None else guessed.long().to(target.device))
    for module in (network, ends):
        pack_linears(module)
        fuse_norms(module, target.dtype)
    return ServedHeads(network, ends, target_digest, config.max_depth)


def _read(folder: Path, config_json: Mapping[str, Any]) -> tuple[HeadsConfig, dict[str, Tensor]]:
    try:
        config = _CONFIG.validate_python(config_json)
        return config, load_file(folder / WEIGHTS)
    except (OSError, ValidationError, SafetensorError) as error:
        raise ModelNotLoadable(f"cannot load heads from {str(folder)!r}: {error}") from error
