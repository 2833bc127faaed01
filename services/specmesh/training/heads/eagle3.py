"""An EAGLE-3 head in training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.heads.eagle3.config import Eagle3Config
from specmesh.inference.models.heads.eagle3.draft_attention import DraftAttention
from specmesh.inference.models.heads.eagle3.folder import save_eagle3
from specmesh.inference.models.heads.eagle3.identity import HeadsTarget
from specmesh.inference.models.heads.eagle3.layer_tap import look_inside
from specmesh.inference.models.heads.eagle3.network import Eagle3Network
from specmesh.inference.models.heads.seen import Seen, look
from specmesh.training.heads.trainee import HeadsGuess

NORM_EPS = 1e-6
DEFAULT_ROPE_THETA = 10000.0


class Eagle3Trainee:
    """A ``Trainee``: a decoder layer with an output layer of its own, which begins as the
    target's."""

    def __init__(
        self, config: Eagle3Config, target: Any, identity: HeadsTarget, guessed: Tensor | None
    ) -> None:
        self.network = Eagle3Network(config)
        self.guessed = guessed
        self.name = f"eagle3-{config.inner_size}"
        self._target = target
        self._identity = identity

    def start(self, token_ids: Tensor) -> None:
        """Begin by passing on the deepest of the states, at the scales of the input of the target's
        output layer, which the head's begins as."""
        network, config = self.network, self.network.config
        last = _scales(look(self._target, token_ids).hidden)
        deepest = _scales(self._normed_deepest(self.look(token_ids).hidden))
        rows = self._target.get_output_embeddings().weight.detach()
        with torch.no_grad():
            network.fc.weight.zero_()
            network.fc.weight[:, -config.target_hidden_size :].copy_(
                torch.eye(config.hidden_size, config.target_hidden_size)
            )
            for layer in (network.out, network.down):
                layer.weight.zero_()
            network.last_norm.weight.copy_(last / deepest)
            network.lm_head.weight.copy_(rows if self.guessed is None else rows[self.guessed])

    def look(self, token_ids: Tensor) -> Seen:
        """Implement ``Trainee``."""
        return look_inside(self._target, token_ids, self.network.config.layer_ids)

    def unroll(self, seen: Seen, depth: int) -> Iterator[HeadsGuess]:
        """Implement ``Trainee``."""
        starts = seen.token_ids.shape[1] - depth
        states = self.network.fuse(seen.hidden[:, :starts])
        embedded = self._target.get_input_embeddings()(seen.token_ids)
        positions = torch.arange(starts, device=states.device).expand(len(states), -1)
        attend = DraftAttention()
        for first in range(1, depth + 1):
            read = embedded[:, first : first + starts]
            states = self.network(read, states, positions + first, attend)
            yield HeadsGuess(self.network.logits(states), first)

    def save(self, folder: Path) -> None:
        """Implement ``Trainee``."""
        save_eagle3(self.network, self.guessed, self._identity, folder)

    def _normed_deepest(self, hidden: Tensor) -> Tensor:
        size = self.network.config.target_hidden_size
        return nn.functional.rms_norm(hidden[..., -size:].float(), (size,), eps=NORM_EPS)


def eagle3_config(
    target: Any, *, num_guessed: int, inner_size: int, max_depth: int
) -> Eagle3Config:
    """Return the architecture of a head for ``target``, a model as ``read_model`` returns it, with
    heads of attention as in the target. Raises ``ModelNotLoadable`` for a target without an output
    layer over its hidden states."""
    config = target.config.get_text_config()
    output = target.get_output_embeddings()
    embedding_size = target.get_input_embeddings().weight.shape[1]
    if output is None or output.weight.shape[1] != embedding_size:
        raise ModelNotLoadable(
            f"{type(target).__name__} has no output layer over states of its embeddings' size "
            f"{embedding_size}"
        )
    heads = config.num_attention_heads
    rope = getattr(config, "rope_parameters", None) or {}
    return Eagle3Config(
        target_hidden_size=config.hidden_size,
        layer_ids=trained_layer_ids(config.num_hidden_layers),
        vocab_size=config.vocab_size,
        draft_vocab_size=num_guessed,
        hidden_size=embedding_size,
        inner_size=inner_size or 2 * embedding_size,
        num_heads=heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        rope={"rope_type": "default", "rope_theta": rope.get("rope_theta", DEFAULT_ROPE_THETA)},
        max_position_embeddings=config.max_position_embeddings,
        norm_eps=NORM_EPS,
        max_depth=max_depth,
        norm_before_residual=True,
        fuse_norm="each",
    )


def trained_layer_ids(num_layers: int) -> tuple[int, ...]:
    """Return the states that a head is trained to read in a target of ``num_layers``: those that
    published heads read by default, as far as the target is deep enough for them."""
    middle = num_layers // 2
    return (min(2, middle), middle, max(num_layers - 3, middle))


def _scales(hidden: Tensor) -> Tensor:
    """Return the root mean square of each feature of ``[..., features]``."""
    return hidden.float().flatten(0, -2).square().mean(0).sqrt()
