"""The one target model of a mesh, known from the first replica that comes up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Self

from tokenizers import Tokenizer

from specmesh.orchestrator.mesh.peer import PeerModel
from specmesh.serving.tokenizers import difference
from specmesh.v1 import model_pb2


@dataclass(frozen=True, slots=True)
class Target:
    """What requests are checked against."""

    info: model_pb2.ModelInfo
    tokenizer_json: str
    tokenizer: Tokenizer
    longest_token_bytes: int
    """No token stands for more bytes of text."""

    @classmethod
    def of(cls, model: PeerModel) -> Self:
        """The target that ``model`` is a replica of."""
        tokenizer = Tokenizer.from_str(model.tokenizer_json)
        # As vocabularies spell them, which is never shorter than the text.
        longest = max(len(entry.encode()) for entry in tokenizer.get_vocab())
        return cls(model.info, model.tokenizer_json, tokenizer, longest)


class TargetRegistry:
    """Holds the target, and the rules by which peers are admitted to its mesh."""

    def __init__(self) -> None:
        self._target: asyncio.Future[Target] = asyncio.get_running_loop().create_future()

    @property
    def known(self) -> Target | None:
        """The target, once a replica has come up."""
        return self._target.result() if self._target.done() else None

    async def admit_verifier(self, model: PeerModel) -> str | None:
        """The first replica defines the target; others must be replicas of the same."""
        if not self._target.done():
            if not model.tokenizer_json:
                return "the target has no tokenizer"
            self._target.set_result(Target.of(model))
        ours = self._target.result().info
        for field in ("name", "vocab_size", "tokenizer_fingerprint", "num_parameters"):
            if getattr(ours, field) != getattr(model.info, field):
                return (
                    f"not a replica of {ours.name!r}: its {field} is "
                    f"{getattr(model.info, field)!r}, not {getattr(ours, field)!r}"
                )
        return None

    async def admit_drafter(self, model: PeerModel) -> str | None:
        """A drafter must speak the target's tokens; waits until the target is known.

        With the target's tokenizer it may have been padded to another vocabulary size; without
        one of its own it works on any tokens if it names no size.
        """
        target = await asyncio.shield(self._target)
        theirs, ours = model.info, target.info
        if theirs.tokenizer_fingerprint == ours.tokenizer_fingerprint:
            return None
        if not theirs.tokenizer_fingerprint:
            if theirs.vocab_size in {0, ours.vocab_size}:
                return None
            return (
                f"the vocabularies of target {ours.name!r} and drafter {theirs.name!r} have "
                f"{ours.vocab_size} and {theirs.vocab_size} tokens"
            )
        return (
            f"the tokenizers of target {target.info.name!r} and drafter {model.info.name!r} "
            f"differ: {difference(target.tokenizer_json, model.tokenizer_json)}"
        )
