"""EAGLE-3 heads on disk, in the formats in which people publish them; ours are ``speculators``'."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import embedding

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.heads.eagle3.config import Eagle3Config
from specmesh.inference.models.heads.eagle3.identity import HeadsTarget
from specmesh.inference.models.heads.eagle3.layer_tap import check_layer_ids, decoder_layers
from specmesh.inference.models.heads.eagle3.network import Eagle3Network
from specmesh.inference.models.heads.eagle3.published import speculators_config
from specmesh.inference.models.heads.eagle3.served import Eagle3Heads
from specmesh.inference.models.heads.eagle3.tensors import (
    EMBEDDING,
    from_network,
    guessed_ids,
    to_network,
    vocabulary_maps,
)
from specmesh.inference.models.heads.fitness import TensorsUnfit, check_finite
from specmesh.inference.reasons import reason_of

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
PICKLED_WEIGHTS = "pytorch_model.bin"
STORED_DTYPE = torch.bfloat16

Describe = Callable[[Mapping[str, Any], int], tuple[Eagle3Config, HeadsTarget]]
"""Reads a format's ``config.json``, for a target of so many layers."""


def load_eagle3(
    folder: Path, config_json: Mapping[str, Any], target: Any, digest: str, describe: Describe
) -> Eagle3Heads:
    """Load the head in ``folder`` for ``target``, a model as ``read_model`` returns it, whose
    ``ModelDescription.weights_digest`` is ``digest``. It computes in its data type, on its device.

    Raises ``ModelNotLoadable`` for files that can't be read, and for heads of another target.
    """
    num_layers = len(decoder_layers(target))
    try:
        config, theirs = describe(config_json, num_layers)
        theirs.check(config, folder, target, digest)
        check_layer_ids(config.layer_ids, num_layers)
        tensors = _read_tensors(folder)
        with torch.device("meta"):
            network = Eagle3Network(config)
        guessed = guessed_ids(tensors, config)
        network.load_state_dict(to_network(network, tensors), assign=True)
        network.to(target.device, target.dtype)
        own = _own_embedding(tensors, config)
        check_finite(network.state_dict() | own)
    except ValidationError as error:
        raise ModelNotLoadable(
            f"cannot load the heads in {str(folder)!r}: {_told(error)}"
        ) from error
    except Exception as error:  # readers of configurations and pickles raise anything
        raise ModelNotLoadable(
            f"cannot load the heads in {str(folder)!r}: {reason_of(error)}"
        ) from error
    network.requires_grad_(requires_grad=False)
    network.rotary.float()  # angles of far positions need all digits
    return Eagle3Heads(
        network,
        _embedding(own.get(EMBEDDING), target),
        None if guessed is None else guessed.to(target.device),
        digest,
        target.dtype,
    )


def save_eagle3(
    network: Eagle3Network, guessed: Tensor | None, target: HeadsTarget, folder: Path
) -> None:
    """Write a head for ``target`` into ``folder``, rounded to bf16. ``guessed`` are token ids
    ``[n]``, None for all."""
    tensors = {
        name: tensor.detach().cpu().to(STORED_DTYPE).contiguous()
        for name, tensor in from_network(network).items()
    }
    if guessed is not None:
        tensors |= vocabulary_maps(guessed.cpu(), network.config.vocab_size)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / WEIGHTS)
    # Otherwise only its owner could read it, and a container runs as another user.
    (folder / WEIGHTS).chmod(0o644)
    config = speculators_config(network.config, target)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def weights_file(folder: Path) -> Path:
    """Return the file with the tensors of heads in ``folder``. Raises ``FileNotFoundError``."""
    for name in (WEIGHTS, PICKLED_WEIGHTS):
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(f"it has no {WEIGHTS} and no {PICKLED_WEIGHTS}")


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    file = weights_file(folder)
    if file.name == WEIGHTS:
        return load_file(file)
    found = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(found, dict) or not all(isinstance(each, Tensor) for each in found.values()):
        raise ValueError(f"{file.name} does not hold tensors by name")
    return found


def _own_embedding(tensors: Mapping[str, Tensor], config: Eagle3Config) -> dict[str, Tensor]:
    """Return the head's own embedding by its name; empty if it uses the target's. Raises
    ``TensorsUnfit`` if it is that of another vocabulary or width."""
    if EMBEDDING not in tensors:
        return {}
    own, shape = tensors[EMBEDDING], (config.vocab_size, config.hidden_size)
    if own.shape != shape:
        raise TensorsUnfit(f"{EMBEDDING} has the shape {tuple(own.shape)}, not {shape}")
    return {EMBEDDING: own}


def _embedding(own: Tensor | None, target: Any) -> Callable[[Tensor], Tensor]:
    """Return the head's own embedding, or the target's if it has none or the same."""
    shared: Callable[[Tensor], Tensor] = target.get_input_embeddings()
    if own is None:
        return shared
    weight = own.to(target.device, target.dtype)
    if torch.equal(weight, target.get_input_embeddings().weight):
        return shared
    return lambda token_ids: embedding(token_ids, weight)


def _told(error: ValidationError) -> str:
    """Return what is wrong with which fields."""
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
