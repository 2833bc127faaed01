"""Messages for the events of an answer."""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.orchestrator.answers.emission import AnswerEnd, EmittedToken, ToldLogprobs
from specmesh.orchestrator.answers.session_log import SessionLog
from specmesh.orchestrator.driver.stats import RequestStats
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.replicas.transport.peer_model import kind_of
from specmesh.orchestrator.requests.plan import RequestPlan
from specmesh.orchestrator.requests.prompts import digest_of
from specmesh.orchestrator.strategies.commands import StopReason, TokenKind
from specmesh.v1.events_pb2 import (
    FINISH_REASON_END_OF_TEXT,
    FINISH_REASON_LENGTH,
    FINISH_REASON_STOP,
    TOKEN_KIND_ACCEPTED,
    TOKEN_KIND_BONUS,
    TOKEN_KIND_RECOVERED,
    TOKEN_KIND_UNCHECKED,
    TOKEN_KIND_UNSPECIFIED,
    GenerationChunk,
    GenerationEvent,
    GenerationFinished,
    GenerationStarted,
    GenerationStats,
    Heartbeat,
    MessageDelta,
    TokenLogprob,
    TokenLogprobs,
)

REASONS = {
    StopReason.END_OF_TEXT: FINISH_REASON_END_OF_TEXT,
    StopReason.STOP: FINISH_REASON_STOP,
    StopReason.LENGTH: FINISH_REASON_LENGTH,
}
KINDS = {
    TokenKind.UNKNOWN: TOKEN_KIND_UNSPECIFIED,
    TokenKind.ACCEPTED: TOKEN_KIND_ACCEPTED,
    TokenKind.RECOVERED: TOKEN_KIND_RECOVERED,
    TokenKind.BONUS: TOKEN_KIND_BONUS,
    TokenKind.UNCHECKED: TOKEN_KIND_UNCHECKED,
}


def started(
    plan: RequestPlan, target: Target, session: SessionLog, heartbeat_s: float
) -> GenerationEvent:
    """Return the first event, with everything that is settled before the first token."""
    return GenerationEvent(
        started=GenerationStarted(
            session_id=session.session.session_id,
            epoch=session.epoch,
            model=target.info.name,
            strategy=plan.strategy,
            seed=plan.sampling.seed,
            num_prompt_tokens=len(plan.prompt),
            resumable=session.resumable,
            resume_token=session.session.claim.resume_token,
            model_fingerprint=kind_of(target.info),
            heartbeat_ms=round(heartbeat_s * 1e3),
            prompt_digest=digest_of(plan.prompt),
            max_tokens=plan.goal.max_tokens,
            has_deltas=plan.style.is_parsed,
        )
    )


def heartbeat() -> GenerationEvent:
    """Return the event that says that the answer is still in progress."""
    return GenerationEvent(heartbeat=Heartbeat())


def chunk(
    tokens: Sequence[EmittedToken],
    deltas: Sequence[MessageDelta],
    stats: GenerationStats,
    *,
    resumable: bool,
) -> GenerationEvent:
    """Return the event for ``tokens``, which are consecutive and at least one, and for the
    ``deltas`` that they bring."""
    return GenerationEvent(
        chunk=GenerationChunk(
            first_index=tokens[0].index,
            token_ids=[token.token_id for token in tokens],
            text="".join([token.text for token in tokens]),
            text_lengths=[len(token.text) for token in tokens],
            resumable=resumable,
            kinds=[KINDS[token.kind] for token in tokens],
            logprobs=[
                told_logprobs(token.token_id, token.logprobs)
                for token in tokens
                if token.logprobs is not None
            ],
            stats=stats,
            deltas=deltas,
        )
    )


def told_logprobs(token_id: int, told: ToldLogprobs) -> TokenLogprobs:
    """Return the message for the log-probabilities at the position of ``token_id``."""

    def one(token_id: int, logprob: float) -> TokenLogprob:
        text_bytes = told.text_bytes[token_id]
        return TokenLogprob(token_id=token_id, logprob=logprob, text_bytes=text_bytes)

    return TokenLogprobs(
        chosen=one(token_id, told.known.logprob),
        top=map(one, told.known.top_token_ids, told.known.top_logprobs),
        text_offset=told.text_offset,
    )


def finished(
    end: AnswerEnd, deltas: Sequence[MessageDelta], stats: GenerationStats, *, resumable: bool
) -> GenerationEvent:
    """Return the last event, with the ``deltas`` of what was held back until the ``end``."""
    message = GenerationFinished(
        finish_reason=REASONS[end.reason],
        text=end.text,
        resumable=resumable,
        stats=stats,
        deltas=deltas,
    )
    if end.stop_string is not None:
        message.stop_string = end.stop_string
    elif end.stop_token_id is not None:
        message.stop_token_id = end.stop_token_id
    return GenerationEvent(finished=message)


def counts(stats: RequestStats) -> GenerationStats:
    """Return the counts of the mesh's work for the answer, without times and numbers of its
    tokens."""
    return GenerationStats(
        num_verify_calls=stats.num_verify_calls,
        num_verified_tokens=stats.num_verified_tokens,
        num_accepted_tokens=stats.num_accepted_tokens,
        num_wasted_tokens=stats.num_wasted_tokens,
        num_drafted_tokens=stats.num_drafted_tokens,
        num_target_tokens=stats.num_target_tokens,
        explanation=stats.explanation,
    )
