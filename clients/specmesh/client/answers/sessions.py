"""Sessions: answers that can be resumed, looked up or cancelled without their stream."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self

from specmesh.client.answers.messages import NOTHING_SAID
from specmesh.client.answers.values import FinishReason, finish_reason_from
from specmesh.client.requests.chats import ChatMessage, ToolCall
from specmesh.v1 import session_pb2


@dataclass(frozen=True, slots=True, repr=False)
class SavedSession:
    """All that any process needs to continue an answer: ``client.resume(saved)``.

    ``session_id`` and ``resume_token`` are enough while the store has the session. The other
    fields, which a stream's ``session`` has, continue the answer even without the store, after
    the text that was read (``text``, ``token_ids``, and the ``message`` in it). Keep it secret:
    anyone who has it can read the answer. ``epoch`` is the highest epoch used; ``request`` is the
    serialised request. ``has_ended`` says that the answer was read to its end, and so with the text
    that was held back until then.
    """

    session_id: str
    resume_token: bytes
    epoch: int = 1
    token_ids: tuple[int, ...] = ()
    unchecked: tuple[int, ...] = ()
    text: str = ""
    request: bytes = b""
    message: ChatMessage = NOTHING_SAID
    has_ended: bool = False

    def __repr__(self) -> str:
        return f"SavedSession({self.session_id!r}, {len(self.token_ids)} tokens)"

    def to_json(self) -> str:
        """Return the session as JSON, for `from_json`."""
        return json.dumps(
            {
                "session_id": self.session_id,
                "resume_token": b64encode(self.resume_token).decode(),
                "epoch": self.epoch,
                "token_ids": self.token_ids,
                "unchecked": self.unchecked,
                "text": self.text,
                "request": b64encode(self.request).decode(),
                "message": asdict(self.message),
                "has_ended": self.has_ended,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote. Raises ValueError, KeyError or TypeError for anything else."""
        saved = json.loads(text)
        return cls(
            session_id=saved["session_id"],
            resume_token=b64decode(saved["resume_token"]),
            epoch=saved["epoch"],
            token_ids=tuple(saved["token_ids"]),
            unchecked=tuple(saved["unchecked"]),
            text=saved["text"],
            request=b64decode(saved["request"]),
            message=_message(saved),
            has_ended=saved.get("has_ended", False),  # Older clients did not save it.
        )


def _message(saved: Mapping[str, Any]) -> ChatMessage:
    """Return the message of a saved session; older clients saved the text alone."""
    message = saved.get("message", {"role": "assistant", "content": saved["text"]})
    calls = tuple(ToolCall(**call) for call in message.get("tool_calls", ()))
    return ChatMessage(**{**message, "tool_calls": calls})


class SessionState(StrEnum):
    """The state of a session."""

    ACTIVE = "active"
    """The answer is being generated, or its stream broke and it can be resumed."""
    FINISHED = "finished"
    """The answer is complete."""
    CANCELLED = "cancelled"
    """The answer was cancelled."""
    UNSPECIFIED = "unspecified"
    """A state that this version of the client does not know."""


_STATES = {
    session_pb2.SESSION_STATE_ACTIVE: SessionState.ACTIVE,
    session_pb2.SESSION_STATE_FINISHED: SessionState.FINISHED,
    session_pb2.SESSION_STATE_CANCELLED: SessionState.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Session:
    """An answer as stored. The store deletes it at ``expire_time`` unless it continues.

    ``finish_reason`` is None unless the answer is finished.
    """

    session_id: str
    state: SessionState
    epoch: int
    model: str
    strategy: str
    seed: int
    num_prompt_tokens: int
    token_ids: tuple[int, ...]
    unchecked: tuple[int, ...]
    text: str
    finish_reason: FinishReason | None
    expire_time: datetime


def session_from(message: session_pb2.Session) -> Session:
    """Convert a session message."""
    state = _STATES.get(message.state, SessionState.UNSPECIFIED)
    finished = state is SessionState.FINISHED
    return Session(
        session_id=message.session_id,
        state=state,
        epoch=message.epoch,
        model=message.model,
        strategy=message.strategy,
        seed=message.seed,
        num_prompt_tokens=message.num_prompt_tokens,
        token_ids=tuple(message.token_ids),
        unchecked=tuple(message.unchecked),
        text=message.text,
        finish_reason=finish_reason_from(message.finish_reason) if finished else None,
        expire_time=message.expire_time.ToDatetime(tzinfo=UTC),
    )
