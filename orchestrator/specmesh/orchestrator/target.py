"""The one target model of a mesh: whose replicas work, and when another one takes its place.

The first replica that comes up says which it is. Others must be replicas of the very same:
what a mesh of two targets says would be neither's. Those of another model wait, until none of
the target's is there any more, as at the end of a rolling update.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tokenizers import Tokenizer

from specmesh.orchestrator.mesh.peer import Peer, PeerModel
from specmesh.orchestrator.mesh.pool import Pool
from specmesh.serving.tokenizers import difference
from specmesh.v1 import model_pb2

log = logging.getLogger(__name__)

MOVE_ON_SECONDS = 5.0
"""How long nobody may serve the target before another model takes its place: as long as a
request waits for a replica that may only be starting again."""

REPLICAS_AGREE_ON = (
    "name",
    "vocab_size",
    "context_tokens",
    "end_of_text_ids",
    "tokenizer_fingerprint",
    "num_parameters",
    "dtype",
    "weights_digest",
)
DIGITS = 12
"""Of a digest, told to people."""


@dataclass(frozen=True, slots=True)
class Target:
    """What requests are checked against."""

    info: model_pb2.ModelInfo
    tokenizer_json: str
    tokenizer: Tokenizer
    longest_token_bytes: int
    """No token stands for more bytes of text."""
    kv_capacity_tokens: int = 0
    """What the replica with the least room can hold of one answer, prompt included; 0 is no
    limit."""

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
        self._verifiers: Sequence[Peer] = ()
        self._drafters: Sequence[Peer] = ()
        self._patience: asyncio.TimerHandle | None = None
        """Runs while nobody serves the target."""
        self._overdue = False

    @property
    def known(self) -> Target | None:
        """The target, once a replica has come up."""
        return self._target.result() if self._target.done() else None

    def follow(self, verifiers: Pool, drafters: Pool) -> None:
        """From here on, move on to another target when none of its replicas is left."""
        self._verifiers, self._drafters = verifiers.peers, drafters.peers
        for peer in self._verifiers:
            peer.watchers[self._reconsider] = None
        self._reconsider()

    async def admit_verifier(self, model: PeerModel) -> str | None:
        """The first replica defines the target; others must be replicas of the same."""
        if not model.tokenizer_json:
            return "the target has no tokenizer"
        if not self._target.done():
            self._target.set_result(Target.of(model))
        return _not_a_replica(self._target.result().info, model.info)

    async def admit_drafter(self, model: PeerModel) -> str | None:
        """A drafter must speak the target's tokens; waits until the target is known."""
        await asyncio.shield(self._target)
        return _not_a_drafter(self._target.result(), model)

    def _reconsider(self) -> None:
        """A verifier may have come or gone."""
        if self.known is None:
            return
        if any(peer.serving and not peer.refusal for peer in self._verifiers):
            self._rest()
            return
        if self._patience is None:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(MOVE_ON_SECONDS, self._lose_patience)
        waiting = [peer.model for peer in self._verifiers if peer.serving and peer.model]
        candidates = [model for model in waiting if model.tokenizer_json]
        # Where each of them serves something else, none can come back.
        if candidates and (self._overdue or len(waiting) == len(self._verifiers)):
            self._move_on(candidates)

    def _lose_patience(self) -> None:
        self._overdue = True
        self._reconsider()

    def _rest(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience, self._overdue = None, False

    def _move_on(self, candidates: Sequence[PeerModel]) -> None:
        """The target is what most of those wait with, of equals the first by address."""
        self._rest()
        identities = [_identity(model.info) for model in candidates]
        ((chosen, _),) = Counter(identities).most_common(1)
        target = Target.of(candidates[identities.index(chosen)])
        old, new = self._target.result().info, target.info
        log.warning("target replaced", extra={"old": _words(old), "new": _words(new)})
        self._target = asyncio.get_running_loop().create_future()
        self._target.set_result(target)
        for peer in self._drafters:
            if peer.model is not None:
                peer.judge(_not_a_drafter(target, peer.model))
        for peer in self._verifiers:
            if peer.model is not None:
                peer.judge(_not_a_replica(new, peer.model.info))


def _not_a_replica(ours: model_pb2.ModelInfo, theirs: model_pb2.ModelInfo) -> str | None:
    """Why ``theirs`` is no replica of ``ours``; None if it is."""
    differences = [
        f"its {field} is {_shown(theirs, field)}, not {_shown(ours, field)}"
        for field in REPLICAS_AGREE_ON
        if getattr(ours, field) != getattr(theirs, field)
    ]
    if not differences:
        return None
    return f"not a replica of {_words(ours)} but {_words(theirs)}: {'; '.join(differences)}"


def _not_a_drafter(target: Target, model: PeerModel) -> str | None:
    """Why ``model`` cannot draft for ``target``; None if it can.

    With the target's tokenizer it may have been padded to another vocabulary size; without
    one of its own it works on any tokens if it names no size.
    """
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
        f"the tokenizers of target {ours.name!r} and drafter {theirs.name!r} "
        f"differ: {difference(target.tokenizer_json, model.tokenizer_json)}"
    )


def _identity(info: model_pb2.ModelInfo) -> tuple[str, ...]:
    return tuple(repr(getattr(info, field)) for field in REPLICAS_AGREE_ON)


def _shown(info: model_pb2.ModelInfo, field: str) -> str:
    value = getattr(info, field)
    return repr(value[:DIGITS]) if field == "weights_digest" else repr(value)


def _words(info: model_pb2.ModelInfo) -> str:
    """Names a model to people."""
    digest = f"digest {info.weights_digest[:DIGITS]}" if info.weights_digest else ""
    revision = f"revision {info.revision[:DIGITS]}" if info.revision else ""
    words = ", ".join(filter(None, (info.dtype, digest, revision)))
    return f"{info.name!r} ({words})" if words else repr(info.name)
