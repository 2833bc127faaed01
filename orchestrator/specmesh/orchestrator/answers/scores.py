"""The likelihood of a text under the target, without an answer to it.

Every token of the text but the first is a node of a chain that the target scores below the tokens
before it, a piece of the text in each call. What is known of a piece is sent before the next one is
scored, so that neither the client nor the event loop waits for the whole text.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import closing

from opentelemetry import context as opentelemetry_context

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.logprobs import MAX_TOP_LOGPROBS, Logprobs
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.admission.entrance import Entrance
from specmesh.orchestrator.answers.emission import ToldLogprobs
from specmesh.orchestrator.answers.events import told_logprobs
from specmesh.orchestrator.answers.request_metrics import RequestMetrics
from specmesh.orchestrator.replicas.calls.cause import Cause, clock
from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.calls.verify.verify_calls import VerifyCalls
from specmesh.orchestrator.replicas.need import Need
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.replicas.transport.peer_model import kind_of
from specmesh.orchestrator.requests.plan import check_model, checked_salt
from specmesh.orchestrator.requests.prompts import PromptReader
from specmesh.orchestrator.strategies.commands import Verify
from specmesh.orchestrator.text.decoder import TextStream
from specmesh.orchestrator.text.encoding import Encoded
from specmesh.orchestrator.text.token_bytes import TokenBytes
from specmesh.v1 import events_pb2, generation_pb2, model_pb2, scoring_pb2

MAX_PIECE = 512
"""Most tokens that one call scores; other calls wait meanwhile."""
MAX_PIECE_LOGITS = 5_000_000
"""Most logits of a piece. The replica needs 5 ns to judge one, between forwards that others wait
for."""
MAX_PIECE_LOGPROBS = 4096
"""Most log-probabilities of a piece. The event loop needs 3 us to read and tell one."""
READER_SECONDS = 0.5
"""Time for which a slot is kept for a client that does not read."""
_GREEDY = Sampling(temperature=0.0)


class Scoring:
    """One request for the likelihood of a text, checked. Raises ``InvalidField``,
    ``NotFoundStatus`` and ``FailedPreconditionStatus``."""

    def __init__(self, request: scoring_pb2.ScoreRequest, text: Encoded, target: Target) -> None:
        if request.num_top_logprobs > MAX_TOP_LOGPROBS:
            raise InvalidField("num_top_logprobs", f"must be in [0, {MAX_TOP_LOGPROBS}]")
        target.require(model_pb2.MODEL_FEATURE_NODE_LOGPROBS)
        self.num_tokens = len(text.token_ids)
        self._num_top = request.num_top_logprobs
        self._cache_salt = checked_salt(request.cache_salt)
        self._text = text
        self._target = target

    async def pieces(
        self, mesh: ReplicaPools, metrics: RequestMetrics
    ) -> AsyncGenerator[scoring_pb2.ScoreResponse, None]:
        """Yield the likelihood of the text piece by piece. Raises what ``VerifyCalls.verify``
        raises."""
        tokens, fingerprint = self._text.token_ids, kind_of(self._target.info)
        told = _Told(self._text, self._target.token_bytes)
        yield scoring_pb2.ScoreResponse(token_ids=tokens[:1], model_fingerprint=fingerprint)
        with closing(
            CommittedPrefix("", tokens, mesh.holders, mesh.prefix_salt(self._cache_salt))
        ) as prefix:
            calls = VerifyCalls(self._context(mesh, prefix, metrics.deadline))
            size = self._piece_size
            for task, start in enumerate(range(1, len(tokens), size), start=1):
                piece = TokenTree.chain(tokens[start : start + size])
                command = Verify(task, (), piece)
                metrics.stats.sent(command)
                verified = await calls.verify(command, _context_of(start))
                metrics.stats.num_verify_calls += 1
                yield scoring_pb2.ScoreResponse(
                    token_ids=piece.token_ids,
                    logprobs=map(told.next, verified.verdict.node_logprobs),
                    model_fingerprint=fingerprint,
                )
        metrics.cached(calls.num_cached_tokens or 0)

    @property
    def _piece_size(self) -> int:
        by_logits = MAX_PIECE_LOGITS // self._target.info.vocab_size
        by_logprobs = MAX_PIECE_LOGPROBS // (self._num_top + 1)
        return max(1, min(MAX_PIECE, by_logits, by_logprobs))

    def _context(
        self, mesh: ReplicaPools, prefix: CommittedPrefix, deadline: float
    ) -> RequestContext:
        features = frozenset({model_pb2.MODEL_FEATURE_NODE_LOGPROBS})
        return RequestContext(
            *(mesh, prefix, _GREEDY),
            vocab_size=self._target.info.vocab_size,
            deadline=deadline,
            need=Need(kind_of(self._target.info), features),
            num_node_logprobs=self._num_top,
        )


class _Told:
    """The messages for the tokens of a text behind the first, one after the other.

    A text spells its special tokens, unlike an answer. Those that the tokenizer has put around it
    are not part of it and add nothing. Offsets are those in the text as it was given, which the
    tokenizer may change; those of token ids are in the text that they spell.
    """

    def __init__(self, text: Encoded, token_bytes: TokenBytes) -> None:
        self._text = text
        self._stream = TextStream(token_bytes, (), (), token_bytes.special.keys())
        self._index = 0
        self._push()

    def next(self, known: Logprobs) -> events_pb2.TokenLogprobs:
        """Return the message for the next token, with the bytes of all tokens that it names."""
        token = self._text.token_ids[self._index]
        bytes_of = {each: self._stream.bytes_of(each) for each in (token, *known.top_token_ids)}
        if not self._text.is_own(self._index):
            bytes_of[token] = b""
        offset = self._stream.offset_of(bytes_of[token])
        if self._text.offsets is not None:
            offset = self._text.offsets[self._index]
        told = ToldLogprobs(known, bytes_of, offset)
        self._push()
        return told_logprobs(token, told)

    def _push(self) -> None:
        if self._text.is_own(self._index):
            self._stream.push(self._text.token_ids[self._index])
        self._index += 1


async def admitted(
    pieces: AsyncGenerator[scoring_pb2.ScoreResponse, None],
    num_tokens: int,
    entrance: Entrance,
    deadline: float,
) -> AsyncGenerator[scoring_pb2.ScoreResponse, None]:
    """Yield the ``pieces`` of a text of ``num_tokens``, and hold a slot while they are made. A
    reader who takes long over one loses the slot to others, and gets another as a resumed answer
    does. Raises what ``Entrance.slot`` raises."""
    later, num_left, resumed = asyncio.get_running_loop().call_later, num_tokens - 1, False
    while True:
        async with entrance.slot(deadline, resumed=resumed) as slot:
            slot.limit(num_left)
            async for piece in pieces:
                num_left -= len(piece.logprobs)
                slot.progressed(len(piece.logprobs))
                leaving = later(READER_SECONDS, slot.leave)
                try:
                    yield piece
                finally:
                    leaving.cancel()
                if num_left and not slot.is_held:
                    break
            else:
                return
        resumed = True


async def read_scoring(
    request: scoring_pb2.ScoreRequest, prompts: PromptReader, target: Target
) -> Scoring:
    """Check ``request`` and turn its text into tokens; raises what ``PromptReader.read`` and
    ``Scoring`` raise."""
    check_model(request.model, target)
    asked = generation_pb2.GenerateRequest()
    match request.WhichOneof("prompt"):
        case "text":
            asked.text = request.text
        case "tokens":
            asked.tokens.ids.extend(request.tokens.token_ids)
    if request.HasField("add_special_tokens"):
        asked.add_special_tokens = request.add_special_tokens
    try:
        text = await prompts.encode(asked, target, room=0, with_offsets=True)
    except InvalidField as error:
        if not error.field.startswith("tokens.ids"):
            raise
        field = error.field.replace("tokens.ids", "tokens.token_ids", 1)
        raise type(error)(field, error.reason) from None
    return Scoring(request, text, target)


def _context_of(num_before: int) -> CommandContext:
    """Return the context of a call that scores tokens behind the first ``num_before``."""
    now = clock(recorded=False)
    cause = Cause("start", now(), now)
    return CommandContext(num_before, opentelemetry_context.get_current(), cause)
