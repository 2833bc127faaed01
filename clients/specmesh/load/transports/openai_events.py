"""The events of OpenAI's streams, as various servers write them.

Servers differ: fields are null, absent, or their own. Fields without information are ignored;
information in an unknown form fails that request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from specmesh.load.transports.observation import MeshWork
from specmesh.load.transports.transport import RequestFailed, Told

REASONING = ("reasoning_content", "reasoning")
"""Fields for the reasoning of a model: its tokens count, but it is not part of the answer."""


def parsed(data: bytes) -> Mapping[str, Any]:
    """Parse one event. Raises RequestFailed, also for an event that reports an error."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise RequestFailed("BAD_STREAM", f"an event is not a JSON object: {data[:80]!r}")
    if error := event.get("error"):
        raise failed(error, "STREAM_ERROR")
    return event


@dataclass(slots=True)
class StreamedAnswer:
    """The state of one answer, from its events so far."""

    has_finished: bool = False
    """True if the server has said why the answer ended."""
    _num_read: int | None = 0
    """Tokens of all chunks so far, from continuous usage; None once usage proves not to be
    continuous."""
    _num_prompt_tokens: int | None = None
    _num_output_tokens: int | None = None
    _num_resumes: int = 0
    _work: MeshWork | None = None

    def read(self, event: Mapping[str, Any]) -> list[tuple[int | None, str]]:
        """Return the number of tokens, if known, and the text of each chunk of the event.

        Reasoning counts as a chunk with empty text. Raises RequestFailed.
        """
        usage = event.get("usage")
        self._keep_usage(usage)
        chunks: list[tuple[int | None, str]] = []
        for choice in _choices(event):
            self.has_finished |= choice.get("finish_reason") is not None
            self._keep_cost(choice.get("specmesh"))
            delta = choice.get("delta")
            if delta is None:
                delta = {"content": choice.get("text")}
            if not isinstance(delta, Mapping):
                raise _unknown(choice)
            text = _text(delta.get("content"), choice)
            if text or any(_text(delta.get(name), choice) for name in REASONING):
                chunks.append((_num_scored(choice.get("logprobs")), text))
        counted = self._newly_counted(usage, len(chunks))
        return [(counted if scored is None else scored, text) for scored, text in chunks]

    @property
    def told(self) -> Told:
        """Return the server's figures at the end of the answer."""
        return Told(
            num_prompt_tokens=self._num_prompt_tokens,
            num_output_tokens=self._num_output_tokens,
            num_resumes=self._num_resumes,
            work=self._work,
        )

    def _newly_counted(self, usage: object, num_chunks: int) -> int | None:
        """Return the tokens of the event's only chunk, if usage grows with every chunk."""
        told = count(usage.get("completion_tokens")) if isinstance(usage, Mapping) else None
        before = self._num_read
        if not num_chunks:
            return None
        # Usage that does not grow with every chunk says nothing about single chunks.
        if num_chunks > 1 or told is None or before is None or told <= before:
            self._num_read = None
            return None
        self._num_read = told
        return told - before

    def _keep_usage(self, usage: object) -> None:
        if isinstance(usage, Mapping):
            if (prompt := count(usage.get("prompt_tokens"))) is not None:
                self._num_prompt_tokens = prompt
            if (output := count(usage.get("completion_tokens"))) is not None:
                self._num_output_tokens = output

    def _keep_cost(self, cost: object) -> None:
        """Keep the statistics that specmesh's gateway adds to the answer."""
        if isinstance(cost, Mapping):
            stats = cost.get("stats")
            told = stats if isinstance(stats, Mapping) else {}
            found = {each.name: count(told.get(each.name)) for each in fields(MeshWork)}
            known = {name: value for name, value in found.items() if value is not None}
            self._work = MeshWork(**known) if len(known) == len(found) else None
            self._num_resumes = count(cost.get("num_resumes")) or 0


def count(value: object) -> int | None:
    """Return ``value`` if it is a number of tokens, otherwise None."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if value >= 0 else None


def failed(error: object, otherwise: str) -> RequestFailed:
    """Return the failure that a server reports in OpenAI's form, or in one of its own."""
    said = error if isinstance(error, Mapping) else {"message": str(error)}
    return RequestFailed(str(said.get("code") or otherwise), str(said.get("message") or otherwise))


def _choices(event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    choices = event.get("choices")
    if choices is None:
        return []
    if not isinstance(choices, list) or not all(isinstance(each, dict) for each in choices):
        raise _unknown(choices)
    return choices


def _text(content: object, choice: object) -> str:
    """Return the text, joined if the server sends it in parts."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        texts = [part.get("text") for part in content]
        return "".join(text for text in texts if isinstance(text, str))
    raise _unknown(choice)


def _num_scored(logprobs: object) -> int | None:
    """Return the number of tokens with log-probabilities, of a chat or of a completion."""
    if isinstance(logprobs, Mapping):
        for name in ("content", "tokens"):
            if isinstance(scored := logprobs.get(name), list) and scored:
                return len(scored)
    return None


def _unknown(found: object) -> RequestFailed:
    return RequestFailed("BAD_STREAM", f"the choices have an unknown form: {str(found)[:80]}")
