"""Description of a stored session for a client that does not take it over."""

from __future__ import annotations

import time
from contextlib import suppress

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.answers.events import REASONS
from specmesh.orchestrator.answers.session_codec import described_request
from specmesh.orchestrator.parsing.answer_parser import AnswerStyle
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.requests.answer_format import ModelFormats, kept_tokens, read_format
from specmesh.orchestrator.requests.prompts import PromptReader
from specmesh.orchestrator.requests.sampling import num_without_stop
from specmesh.orchestrator.strategies.commands import StopReason
from specmesh.orchestrator.text.decoder import TextStream
from specmesh.serving.store.stored_session import CANCELLED, StoredSession
from specmesh.v1 import events_pb2, generation_pb2, session_pb2


async def described(
    stored: StoredSession, target: Target, prompts: PromptReader
) -> session_pb2.Session:
    """Return the session as clients see it; ``target`` is the model that answers.

    Raises ``SessionDamaged``, and ``ResourceExhausted`` with reason OVERLOADED.
    """
    settled = described_request(stored.session, target.info.vocab_size)
    state, finish_reason = _state(stored.ended)
    described = session_pb2.Session(
        session_id=stored.session.session_id,
        state=state,
        epoch=stored.epoch,
        model=settled.model,
        strategy=settled.speculation.strategy,
        seed=settled.sampling.seed,
        num_prompt_tokens=len(stored.session.prompt),
        token_ids=stored.generated.token_ids,
        unchecked=sorted(stored.generated.unchecked),
        # Decoding a long answer takes a while.
        text=await prompts.in_turn(_text, stored, settled, target),
        finish_reason=finish_reason,
    )
    described.expire_time.FromMilliseconds(round((time.time() + stored.expires_in_s) * 1e3))
    return described


def _state(
    ended: str,
) -> tuple[session_pb2.SessionState.ValueType, events_pb2.FinishReason.ValueType]:
    if not ended:
        return session_pb2.SESSION_STATE_ACTIVE, events_pb2.FINISH_REASON_UNSPECIFIED
    if ended == CANCELLED:
        return session_pb2.SESSION_STATE_CANCELLED, events_pb2.FINISH_REASON_UNSPECIFIED
    # A newer orchestrator may have stored reasons that this one does not know.
    reason = StopReason.__members__.get(ended)
    told = REASONS[reason] if reason else events_pb2.FINISH_REASON_UNSPECIFIED
    return session_pb2.SESSION_STATE_FINISHED, told


def _text(stored: StoredSession, settled: generation_pb2.GenerateRequest, target: Target) -> str:
    """Return the text that the session's stream has sent, or would have sent."""
    stopping, prompt = settled.stopping, stored.session.prompt
    ends = {*stopping.stop_token_ids}
    if not stopping.ignore_end_of_text:
        ends.update(target.info.end_of_text_ids)
    style = AnswerStyle()
    with suppress(InvalidField):  # a format that this orchestrator does not know
        style = read_format(settled, target, ModelFormats())
    kept = kept_tokens(target.token_bytes, style, ends, keep_all=settled.keep_special_tokens)
    stream = TextStream(
        *(target.token_bytes, prompt, tuple(stopping.stop_strings), kept),
        num_without_stop(settled.sampling, len(prompt)),
        include_stop=stopping.include_stop_string,
    )
    texts = []
    for token in stored.generated.token_ids:
        texts.append(stream.push(token))
        if stream.stopped:
            break
    return "".join(texts) + (stream.flush() if stored.is_complete else "")
