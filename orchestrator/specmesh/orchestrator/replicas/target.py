"""The single target model of a mesh: the replicas it admits, and its replacement by another model.

The first replica that comes up defines the target. All others must serve exactly the same model,
since an answer verified by two models would be neither's. Replicas of another model wait until the
target has no replica left, as at the end of a rolling update.

The chat template makes prompts and affects no token after them, so replicas of one target may have
different ones. The orchestrator uses that of the first until no replica with it is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from tokenizers import Tokenizer

from specmesh.orchestrator.replicas.pool.replica_pool import Pool
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.orchestrator.replicas.transport.peer_model import PeerModel
from specmesh.orchestrator.text.marked_tokenizer import MarkedTokenizer
from specmesh.orchestrator.text.token_bytes import TokenBytes
from specmesh.serving.errors import FailedPreconditionStatus, UnavailableStatus
from specmesh.serving.templates.chat_template import ChatTemplate
from specmesh.serving.templates.tokenizers import difference, for_whole_texts
from specmesh.v1 import model_pb2

log = logging.getLogger(__name__)

MOVE_ON_SECONDS = 5.0
"""Time without any replica of the target after which another model replaces it: as long as a
request waits for a replica that may only be restarting."""

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
SHOWN = 8
"""Most tokens listed in a warning."""
DIGITS = 12
"""Digits of a digest shown in messages."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target's properties that requests are checked against."""

    info: model_pb2.ModelInfo
    tokenizer_json: str
    tokenizer: Tokenizer
    longest_token_bytes: int
    """Most bytes of text that a single token decodes to."""
    token_bytes: TokenBytes
    marked_tokenizer: MarkedTokenizer
    kv_capacity_tokens: int = 0
    """Tokens of one answer, prompt included, that the smallest KV cache among the replicas can
    hold; 0 means no limit."""
    most_kv_capacity_tokens: int = 0
    """Tokens that the largest KV cache can hold; 0 means no limit."""
    chat_template: ChatTemplate | None = None

    @classmethod
    def of(cls, model: PeerModel) -> Self:
        """Return the target that ``model`` is a replica of."""
        tokenizer = for_whole_texts(Tokenizer.from_str(model.tokenizer_json))
        vocabulary = tokenizer.get_vocab()
        _warn_of_tokens_beyond(model.info, vocabulary)
        # Spellings in the vocabulary, which are never shorter than the text they decode to.
        longest = max(len(entry.encode()) for entry in vocabulary)
        return cls(
            info=model.info,
            tokenizer_json=model.tokenizer_json,
            tokenizer=tokenizer,
            longest_token_bytes=longest,
            token_bytes=TokenBytes(tokenizer),
            marked_tokenizer=MarkedTokenizer(tokenizer),
            chat_template=model.chat_template,
        )

    def served_by(self, replicas: Sequence[model_pb2.ModelInfo]) -> Self:
        """Return the target with the capabilities that all ``replicas``, at least one, share."""
        info = model_pb2.ModelInfo()
        info.CopyFrom(self.info)
        info.protocol_revision = min(each.protocol_revision for each in replicas)
        able = set(self.info.features).intersection(*(each.features for each in replicas))
        info.features[:] = sorted(able)
        info.heads_depth = min(each.heads_depth for each in replicas)
        info.max_batch_calls = min(each.max_batch_calls for each in replicas)
        capacities = [each.kv_capacity_tokens for each in replicas]
        return replace(
            self,
            info=info,
            kv_capacity_tokens=min(filter(None, capacities), default=0),
            most_kv_capacity_tokens=max(capacities) if all(capacities) else 0,
        )

    def require(self, feature: model_pb2.ModelFeature.ValueType) -> None:
        """Raise ``FailedPreconditionStatus`` unless all replicas have ``feature``."""
        if feature not in self.info.features:
            name = model_pb2.ModelFeature.Name(feature).removeprefix("MODEL_FEATURE_")
            raise FailedPreconditionStatus(
                "UNSUPPORTED_FEATURE",
                f"not every replica of {self.info.name!r} supports {name}",
                {"feature": name},
            )


class TargetRegistry:
    """Holds the target and admits peers that fit it. There is one target at any time."""

    def __init__(self) -> None:
        self._target: asyncio.Future[Target] = asyncio.get_running_loop().create_future()
        self._verifiers: Sequence[Peer] = ()
        """The peers of the verifier pool that is followed; the pool updates it."""
        self._drafters: Sequence[Peer] = ()
        self._timer: asyncio.TimerHandle | None = None
        """Runs while no replica serves the target."""
        self._overdue = False

    @property
    def known(self) -> Target | None:
        """The target, once a replica has come up."""
        return self._target.result() if self._target.done() else None

    def required(self) -> Target:
        """Return the target. Raises ``UnavailableStatus`` with reason NO_VERIFIER before the first
        replica has come up."""
        if self.known is None:
            raise UnavailableStatus("NO_VERIFIER", "no replica of the target has come up yet")
        return self.known

    def follow(self, verifiers: Pool, drafters: Pool) -> None:
        """Start to move on to another target whenever none of its replicas is left."""
        self._verifiers, self._drafters = verifiers.peers, drafters.peers
        verifiers.watchers[self._reconsider] = None
        self._reconsider()

    async def admit_verifier(self, model: PeerModel) -> str | None:
        """Return why ``model`` is refused, None if it is admitted. The first defines the target."""
        if not model.tokenizer_json:
            return "the target has no tokenizer"
        if not self._target.done():
            self._target.set_result(Target.of(model))
        target = self._target.result()
        refusal = _not_a_replica(target.info, model.info)
        if refusal is None and model.chat_template != target.chat_template:
            log.warning("replica with another chat template", extra={"model": model.info.name})
        return refusal

    async def admit_drafter(self, model: PeerModel) -> str | None:
        """Return why ``model`` cannot draft, None if it can. Waits until the target is known."""
        await asyncio.shield(self._target)
        return _not_a_drafter(self._target.result(), model)

    def _reconsider(self) -> None:
        """Move on to another target if it is time, since the verifiers may have changed."""
        if self.known is None:
            return
        if replicas := [peer for peer in self._verifiers if peer.serving and not peer.refusal]:
            self._stop_waiting()
            self._choose_template([peer.model for peer in replicas if peer.model])
            return
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(MOVE_ON_SECONDS, self._timed_out)
        served = [peer.model for peer in self._verifiers if peer.serving and peer.model]
        candidates = [model for model in served if model.tokenizer_json]
        # If all of them serve another model, there is no replica of the target to wait for.
        if candidates and (self._overdue or len(served) == len(self._verifiers)):
            self._move_on(candidates)

    def _choose_template(self, replicas: Sequence[PeerModel]) -> None:
        """Keep the chat template while any of ``replicas`` has it; then take that of the first."""
        target = self._target.result()
        templates = [model.chat_template for model in replicas]
        if templates and target.chat_template not in templates:
            log.warning("chat template replaced", extra={"model": target.info.name})
            self._set(replace(target, chat_template=templates[0]))

    def _set(self, target: Target) -> None:
        self._target = asyncio.get_running_loop().create_future()
        self._target.set_result(target)

    def _timed_out(self) -> None:
        self._overdue = True
        self._reconsider()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._overdue = None, False

    def _move_on(self, candidates: Sequence[PeerModel]) -> None:
        """Make the most frequent model of ``candidates`` the target; of equals, the first."""
        self._stop_waiting()
        identities = [_identity(model.info) for model in candidates]
        ((chosen, _),) = Counter(identities).most_common(1)
        target = Target.of(candidates[identities.index(chosen)])
        old, new = self._target.result().info, target.info
        log.warning("target replaced", extra={"old": _words(old), "new": _words(new)})
        self._set(target)
        self._judge_all(target)

    def _judge_all(self, target: Target) -> None:
        """Admit or refuse all peers anew, and tell their watchers only then: one of them is
        ``_reconsider``, which must not find the target without the replicas that are yet to be
        admitted, and move on again."""
        for peer in self._drafters:
            if peer.model is not None:
                peer.refusal = _not_a_drafter(target, peer.model)
        for peer in self._verifiers:
            if peer.model is not None:
                peer.refusal = _not_a_replica(target.info, peer.model.info)
        for peer in (*self._drafters, *self._verifiers):
            peer.notify()


def _warn_of_tokens_beyond(info: model_pb2.ModelInfo, vocabulary: Mapping[str, int]) -> None:
    """Log the tokenizer's tokens that the model lacks: prompts with them are refused."""
    beyond = [entry for entry, token_id in vocabulary.items() if token_id >= info.vocab_size]
    if beyond:
        known = {"model": info.name, "num_tokens": len(beyond), "tokens": sorted(beyond)[:SHOWN]}
        log.warning("tokenizer has tokens that the model lacks", extra=known)


def _not_a_replica(ours: model_pb2.ModelInfo, theirs: model_pb2.ModelInfo) -> str | None:
    """Return why ``theirs`` is not a replica of ``ours``; None if it is."""
    differences = [
        f"its {field} is {_shown(theirs, field)}, not {_shown(ours, field)}"
        for field in REPLICAS_AGREE_ON
        if getattr(ours, field) != getattr(theirs, field)
    ]
    if not differences:
        return None
    return f"not a replica of {_words(ours)} but {_words(theirs)}: {'; '.join(differences)}"


def _not_a_drafter(target: Target, model: PeerModel) -> str | None:
    """Return why ``model`` cannot draft for ``target``; None if it can.

    With the target's tokenizer, its vocabulary may be padded to another size. Without a tokenizer,
    it works on any tokens, provided it reports no vocabulary size or the target's.
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
    """Return a model's name and version, for messages."""
    digest = f"digest {info.weights_digest[:DIGITS]}" if info.weights_digest else ""
    revision = f"revision {info.revision[:DIGITS]}" if info.revision else ""
    words = ", ".join(filter(None, (info.dtype, digest, revision)))
    return f"{info.name!r} ({words})" if words else repr(info.name)
