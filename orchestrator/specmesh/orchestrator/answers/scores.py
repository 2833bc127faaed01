"""The likelihood of a text under the target, without an answer to it.

Every token of the text but the first is a node of a chain that the target scores below the tokens
before it, a piece of the text in each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from opentelemetry import context as opentelemetry_context

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.logprobs import MAX_TOP_LOGPROBS, Logprobs
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.admission.entrance import Slot
from specmesh.orchestrator.answers.emission import ToldLogprobs
from specmesh.orchestrator.answers.events import told_logprobs
from specmesh.orchestrator.answers.request_metrics import RequestMetrics
from specmesh.orchestrator.replicas.calls.cause import Cause, clock
from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.calls.verify_calls import VerifyCalls
from specmesh.orchestrator.replicas.need import Need
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.replicas.transport.peer_model import kind_of
from specmesh.orchestrator.requests.plan import check_model, checked_salt
from specmesh.orchestrator.requests.prompts import PromptReader
from specmesh.orchestrator.strategies.commands import Verify
from specmesh.orchestrator.text.decoder import TextStream
from specmesh.v1 import generation_pb2, model_pb2, scoring_pb2

MAX_PIECE = 512
"""Most tokens that one call scores; other calls wait meanwhile."""
MAX_PIECE_BYTES = 2**26
"""Most bytes of the logits of a piece, in float32."""
_GREEDY = Sampling(temperature=0.0)


class Scoring:
    """One request for the likelihood of a text, checked. Raises ``InvalidField``,
    ``NotFoundStatus`` and ``FailedPreconditionStatus``."""

    def __init__(
        self, request: scoring_pb2.ScoreRequest, tokens: Sequence[int], target: Target
    ) -> None:
        if request.num_top_logprobs > MAX_TOP_LOGPROBS:
            raise InvalidField("num_top_logprobs", f"must be in [0, {MAX_TOP_LOGPROBS}]")
        target.require(model_pb2.MODEL_FEATURE_NODE_LOGPROBS)
        self.num_tokens = len(tokens)
        self._num_top = request.num_top_logprobs
        self._cache_salt = checked_salt(request.cache_salt)
        self._tokens = tokens
        self._target = target

    async def score(
        self, mesh: ReplicaPools, slot: Slot, metrics: RequestMetrics
    ) -> scoring_pb2.ScoreResponse:
        """Return the likelihood of the text. Raises what ``VerifyCalls.verify`` raises."""
        slot.limit(len(self._tokens))
        known: list[Logprobs] = []
        with closing(
            CommittedPrefix("", self._tokens, mesh.holders, mesh.prefix_salt(self._cache_salt))
        ) as prefix:
            calls = VerifyCalls(self._context(mesh, prefix, metrics.deadline))
            size = self._piece_size
            for task, start in enumerate(range(1, len(self._tokens), size), start=1):
                piece = TokenTree.chain(self._tokens[start : start + size])
                command = Verify(task, (), piece)
                metrics.stats.sent(command)
                verified = await calls.verify(command, _context_of(start))
                metrics.stats.num_verify_calls += 1
                known += verified.verdict.node_logprobs
                slot.progressed(len(piece))
        metrics.cached(calls.num_cached_tokens or 0)
        return scoring_pb2.ScoreResponse(
            token_ids=self._tokens,
            logprobs=[
                told_logprobs(token, told)
                for token, told in zip(self._tokens[1:], self._told(known), strict=True)
            ],
            model_fingerprint=kind_of(self._target.info),
        )

    @property
    def _piece_size(self) -> int:
        row_bytes = 4 * self._target.info.vocab_size
        return max(1, min(MAX_PIECE, MAX_PIECE_BYTES // row_bytes))

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

    def _told(self, known: Sequence[Logprobs]) -> list[ToldLogprobs]:
        """Return the log-probabilities with the bytes of all tokens that they name."""
        text = TextStream(self._target.token_bytes, (), ())
        text.push(self._tokens[0])
        told = []
        for token, logprobs in zip(self._tokens[1:], known, strict=True):
            listed = {token, *logprobs.top_token_ids}
            text_bytes = {each: text.bytes_of(each) for each in listed}
            told.append(ToldLogprobs(logprobs, text_bytes, text.num_characters))
            text.push(token)
        return told


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
        tokens = await prompts.read(asked, target)
    except InvalidField as error:
        if not error.field.startswith("tokens.ids"):
            raise
        field = error.field.replace("tokens.ids", "tokens.token_ids", 1)
        raise type(error)(field, error.reason) from None
    return Scoring(request, tokens, target)


def _context_of(num_before: int) -> CommandContext:
    """Return the context of a call that scores tokens behind the first ``num_before``."""
    now = clock(recorded=False)
    cause = Cause("start", now(), now)
    return CommandContext(num_before, opentelemetry_context.get_current(), cause)
