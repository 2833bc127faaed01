"""The invariants: what was said, written and asked, checked as it happens."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.schedules.client_call import ClientCall
from tests.schedules.models import END_OF_TEXT, text, truth
from tests.schedules.network import ServerCall
from tests.schedules.orchestrators import answering
from tests.schedules.prompts import other_prompt
from tests.schedules.scenario import Question

from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.requests.prompts import digest_of
from specmesh.v1 import events_pb2

MAX_FORWARDS_A_TOKEN = 4
MAX_FORWARDS_A_CALL = 24
_SESSION = re.compile(rb"\{(.+?)\}")


class Record:
    """One answer as its client has it."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.prompt = question.prompt
        """The one behind which its orchestrator began."""
        self.told: list[int] = []
        self.texts: list[str] = []
        self.calls: list[ClientCall] = []
        self.sessions: dict[str, None] = {}
        self.finished: events_pb2.GenerationFinished | None = None
        self.failure: str | None = None

    @property
    def truth(self) -> tuple[int, ...] | None:
        """The only right answer, where there is one."""
        asked = self.question
        return truth(self.prompt, asked.max_tokens, asked.sampling) if asked.has_truth else None


class Ledger:
    """Adds to ``violations`` whatever must not be."""

    def __init__(self, trace: Callable[..., None]) -> None:
        self.violations: list[str] = []
        self._trace = trace
        self._writers: dict[tuple[bytes, bytes], ServerCall | None] = {}
        self._prefixes: dict[ServerCall, CommittedPrefix] = {}
        self._forwards: Counter[str] = Counter()

    def violated(self, what: str) -> None:
        """Something that must not be."""
        self._trace("VIOLATED", what)
        self.violations.append(what)

    def asked(self, session: str) -> None:
        """A verifier was asked something for an answer."""
        self._forwards[session] += 1

    def began(self, prefix: CommittedPrefix) -> None:
        """An orchestrator works on an answer, and ``prefix`` is all it takes for said."""
        call = answering.get()
        assert call is not None
        self._prefixes[call] = prefix

    def read(self, record: Record, call: ClientCall, message: Any) -> None:
        """A client has read something."""
        event = message.event
        if event.HasField("started"):
            self._started(record, event.started)
            record.calls.append(call)
            record.sessions[event.started.session_id] = None
            self._trace("client", call, "started", event.started.epoch)
        elif event.HasField("chunk"):
            self._chunk(record, call, event.chunk)
        elif event.HasField("finished"):
            record.texts.append(event.finished.text)
            record.finished = event.finished
            self._trace("client", call, "finished")

    def written(self, before: dict[bytes, Any], after: dict[bytes, Any], who: Any) -> None:
        """The store has changed."""
        changed = {
            found[1]
            for key in before.keys() | after.keys()
            if before.get(key) != after.get(key) and (found := _SESSION.search(key))
        }
        for session in sorted(changed):
            fields = [v for k, v in after.items() if isinstance(v, dict) and session in k]
            for epoch in (field[b"epoch"] for field in fields if b"epoch" in field):
                if self._writers.setdefault((session, epoch), who) is not who:
                    self.violated(f"two writers under epoch {epoch.decode()} of {session.decode()}")

    def closed(self, record: Record) -> None:
        """Nothing more comes of an answer."""
        asked, told = record.question, record.told
        num_forwards = sum(self._forwards[session] for session in record.sessions)
        most = MAX_FORWARDS_A_TOKEN * asked.max_tokens + MAX_FORWARDS_A_CALL * len(record.calls)
        if num_forwards > most:
            self.violated(f"{num_forwards} forwards for {len(told)} tokens")
        if record.finished is None:
            return
        whole = len(told) == asked.max_tokens or told[-1:] == [END_OF_TEXT]
        if not whole:
            self.violated(f"an answer ends after {len(told)} tokens")
        if record.truth is not None and tuple(told) != record.truth:
            self.violated(f"an answer is {told}, not {record.truth}")
        if "".join(record.texts) != text(told):
            self.violated(f"the text of {told} is {record.texts}")

    def _started(self, record: Record, started: events_pb2.GenerationStarted) -> None:
        """Each stream of an answer follows the prompt of the first one."""
        asked = record.question.prompt
        prompts = {digest_of(prompt): prompt for prompt in (asked, other_prompt(asked))}
        prompt = prompts[started.prompt_digest]
        if record.calls and prompt != record.prompt:
            self.violated(f"an answer to {record.prompt} goes on behind {prompt}")
        record.prompt = prompt

    def _chunk(self, record: Record, call: ClientCall, chunk: events_pb2.GenerationChunk) -> None:
        told, tokens = record.told, list(chunk.token_ids)
        self._trace("client", call, chunk.first_index, tokens)
        if chunk.first_index != len(told):
            self.violated(f"token {chunk.first_index} comes after {len(told)}")
        told += tokens
        record.texts.append(chunk.text)
        if record.truth is not None and tuple(told) != record.truth[: len(told)]:
            self.violated(f"said {told}, the truth is {record.truth}")
        assert call.server is not None
        self._check_prefix(told, record.prompt, self._prefixes[call.server])

    def _check_prefix(
        self, told: Sequence[int], prompt: Sequence[int], prefix: CommittedPrefix
    ) -> None:
        """What the client has is what its present orchestrator goes on from."""
        said = prefix.message("", len(prompt) + len(told), ()).token_ids
        if list(said) != [*prompt, *told]:
            self.violated(f"the client has {told}, but the answer goes on from {list(said)}")
