"""Conversion of requests to what sessions store, and validation of what clients say they have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from google.protobuf.message import DecodeError

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.predict.thresholds import FilterOptions
from specmesh.orchestrator.admission.request_limits import (
    MAX_EPOCH,
    MAX_RESUME_TOKEN_BYTES,
    MAX_SESSION_ID_CHARS,
)
from specmesh.orchestrator.requests.answer_format import write_format
from specmesh.orchestrator.requests.plan import RequestPlan
from specmesh.orchestrator.requests.prompts import DIGEST_BYTES, digest_of
from specmesh.orchestrator.requests.stopping import write_stopping
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.options import OPTIONS
from specmesh.serving.caller import identity
from specmesh.serving.codec.filter_options import write_filter_options
from specmesh.serving.codec.wire import check_tokens, write_sampling
from specmesh.serving.errors import (
    AbortedStatus,
    AlreadyExistsStatus,
    NotFoundStatus,
    UnavailableStatus,
)
from specmesh.serving.rpc.unknown_fields import unknown_field
from specmesh.serving.store.session_store import damaged
from specmesh.serving.store.stored_session import (
    Claim,
    Generated,
    SessionDamaged,
    SessionIdTaken,
    SessionNotFound,
    SessionStart,
    StaleEpoch,
    StoredSession,
    StoredSessionCancelled,
    StoreUnavailable,
)
from specmesh.v1 import generation_pb2, session_pb2, speculation_pb2


def settled(plan: RequestPlan, model: str) -> generation_pb2.GenerateRequest:
    """Return the request with every default filled in and without its prompt, which the session
    keeps as tokens. It means the same at every orchestrator, and its size is bounded by the plan's.
    """
    goal = plan.goal
    request = generation_pb2.GenerateRequest(
        model=model,
        sampling=write_sampling(plan.sampling),
        stopping=write_stopping(plan.stopping),
        speculation=speculation_pb2.SpeculationOptions(
            strategy=plan.strategy, **{name: getattr(goal, name) for name in OPTIONS}
        ),
        num_top_logprobs=plan.num_top_logprobs,
        keep_special_tokens=plan.keep_special_tokens,
        cache_salt=plan.cache_salt,
        format=write_format(plan.style),
    )
    if plan.filter_options != FilterOptions():
        request.speculation.filter.CopyFrom(write_filter_options(plan.filter_options))
    return request


def stored_request(
    session: SessionStart, prompt_digest: bytes, vocab_size: int
) -> generation_pb2.GenerateRequest:
    """Return the request that ``settled`` has stored.

    Raises ``UnavailableStatus`` with reason NEWER_SESSION if a newer orchestrator stored fields
    that this one does not know, since this one would continue with a different answer. Raises
    ``SessionDamaged`` as ``described_request`` does, and if the session's prompt does not have the
    client's ``prompt_digest`` (if not empty)."""
    request = described_request(session, vocab_size)
    if prompt_digest and prompt_digest != digest_of(session.prompt):
        damaged(session.session_id, "its prompt")
        raise SessionDamaged(f"session {session.session_id!r} has another prompt")
    path = unknown_field(request, session.request)
    if path is not None:
        raise _newer(path)
    return request


def described_request(session: SessionStart, vocab_size: int) -> generation_pb2.GenerateRequest:
    """Return the request that ``settled`` has stored, to be described only: it may have fields of a
    newer orchestrator. Raises ``SessionDamaged`` if it is invalid for any version."""
    try:
        request = generation_pb2.GenerateRequest.FromString(session.request)
        check_tokens("prompt", session.prompt, vocab_size)
    except (DecodeError, InvalidField) as error:
        damaged(session.session_id, str(error))
        raise SessionDamaged(f"session {session.session_id!r} is damaged") from error
    return request


@contextmanager
def of_known_values() -> Iterator[None]:
    """Convert a stored request to a plan in the block. Raises ``UnavailableStatus`` with reason
    NEWER_SESSION if it has values, such as a strategy, that this orchestrator does not know."""
    try:
        yield
    except InvalidField as error:
        raise _newer(error.field) from error


def _newer(field: str) -> UnavailableStatus:
    return UnavailableStatus(
        "NEWER_SESSION",
        "the session was begun by a newer orchestrator, and only such a one can continue it",
        {"field": field},
    )


def could_be(stored: StoredSession, goal: Goal, vocab_size: int) -> bool:
    """Return whether the stored tokens can be an answer to their request."""
    generated = stored.generated
    message = generation_pb2.Received(
        token_ids=generated.token_ids, unchecked=sorted(generated.unchecked)
    )
    try:
        read_received(message, goal, vocab_size)
    except InvalidField as error:
        damaged(stored.session.session_id, str(error))
        return False
    return True


def read_received(message: generation_pb2.Received, goal: Goal, vocab_size: int) -> Generated:
    """Return the part of an answer that a client says it has. Raises ``InvalidField`` if no answer
    to this request can have such a part."""
    num_tokens = len(message.token_ids)
    if num_tokens > goal.max_tokens:
        raise InvalidField(
            "received.token_ids",
            f"has {num_tokens} tokens, more than the {goal.max_tokens} that the answer may have",
        )
    if len(message.unchecked) > num_tokens:
        raise InvalidField("received.unchecked", "has more entries than token_ids")
    token_ids, unchecked = tuple(message.token_ids), tuple(message.unchecked)
    check_tokens("received.token_ids", token_ids, vocab_size)
    ends = goal.end_of_text_ids | goal.stop_token_ids
    if not ends.isdisjoint(token_ids[:-1]):
        raise InvalidField("received.token_ids", "continues after a token that ends the answer")
    if any(later <= earlier for earlier, later in pairwise(unchecked)) or (
        unchecked and unchecked[-1] >= num_tokens
    ):
        raise InvalidField("received.unchecked", "must be ascending positions in token_ids")
    return Generated(token_ids, frozenset(unchecked))


def read_prompt_digest(message: generation_pb2.Received) -> bytes:
    """Return the digest of the prompt that the client's part of an answer follows; empty if the
    client does not know it. Raises ``InvalidField``."""
    if len(message.prompt_digest) not in {0, DIGEST_BYTES}:
        raise InvalidField("received.prompt_digest", f"must have {DIGEST_BYTES} bytes or be empty")
    return message.prompt_digest


def read_claim(
    request: generation_pb2.ResumeRequest
    | session_pb2.GetSessionRequest
    | session_pb2.CancelSessionRequest,
) -> Claim:
    """Return the session that the caller claims. Raises ``InvalidField`` if none can match."""
    if not 1 <= len(request.session_id) <= MAX_SESSION_ID_CHARS:
        raise InvalidField("session_id", f"must have 1 to {MAX_SESSION_ID_CHARS} characters")
    if not 1 <= len(request.resume_token) <= MAX_RESUME_TOKEN_BYTES:
        raise InvalidField("resume_token", f"must have 1 to {MAX_RESUME_TOKEN_BYTES} bytes")
    return Claim(request.session_id, request.resume_token, identity())


def read_epoch(request: generation_pb2.GenerateRequest | generation_pb2.ResumeRequest) -> int:
    """Return the epoch that the client names. Raises ``InvalidField``."""
    if not 1 <= request.epoch <= MAX_EPOCH:
        raise InvalidField("epoch", f"must be in [1, {MAX_EPOCH}]")
    return request.epoch


@contextmanager
def told() -> Iterator[None]:
    """Convert errors of the session store to the status that a client gets."""
    try:
        yield
    except (SessionNotFound, SessionDamaged) as error:
        raise NotFoundStatus("SESSION_NOT_FOUND", str(error)) from error
    except SessionIdTaken as error:
        raise AlreadyExistsStatus(
            "REQUEST_ID_REUSED", "another request had this request_id"
        ) from error
    except StoredSessionCancelled as error:
        raise AbortedStatus("SESSION_CANCELLED", str(error)) from error
    except StaleEpoch as error:
        current = {"current_epoch": str(error.current_epoch)}
        raise AbortedStatus("STALE_EPOCH", str(error), current) from error
    except StoreUnavailable as error:
        # The cause is in the log with the store's address, which clients need not know.
        raise UnavailableStatus(
            "STORE_UNAVAILABLE", "the session store is unreachable at the moment"
        ) from error
