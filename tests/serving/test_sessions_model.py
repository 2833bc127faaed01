"""Random histories of several owners, on the store and on a dumb model of it alike."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from redis.asyncio import Redis

from specmesh.serving.sessions import (
    SessionError,
    SessionHeld,
    SessionNotFound,
    SessionStore,
    StaleEpoch,
    StoreConflict,
)

if TYPE_CHECKING:
    from tests.serving.conftest import RedisServer

SESSIONS = st.sampled_from(["x", "x", "x", "y"])  # mostly the one that is there from the start
OWNERS = st.sampled_from(["a", "b", "c"])
TOKENS = st.lists(st.sampled_from([0, 1, 2**31 - 1]), max_size=3)


@dataclass
class ModelSession:
    created_by: str
    prompt: list[int]
    holder: str | None
    owner: str
    generated: list[int] = field(default_factory=list)
    epoch: int = 1
    finished: bool = False


class ModelStore:
    """The store's contract over a dictionary, with no care for atomicity or bytes."""

    def __init__(self) -> None:
        self.sessions: dict[str, ModelSession] = {}

    def create(self, name: str, owner: str, prompt: list[int]) -> int:
        session = self.sessions.get(name)
        if session is None:
            session = self.sessions[name] = ModelSession(owner, prompt, owner, owner)
        elif (session.epoch, session.owner, session.prompt, session.generated) != (
            1,
            owner,
            prompt,
            [],
        ):
            raise StoreConflict
        self._hold(session)
        return 1

    def append(self, name: str, epoch: int, first_index: int, token_ids: list[int]) -> None:
        session = self._fenced(name, epoch)
        old = session.generated
        if first_index > len(old):
            raise StoreConflict
        new = old[:first_index] + token_ids
        shorter = min(len(old), len(new))
        if old[:shorter] != new[:shorter] or (session.finished and len(new) > len(old)):
            raise StoreConflict
        session.generated = max(old, new, key=len)
        self._hold(session)

    def renew(self, name: str, epoch: int) -> None:
        self._hold(self._fenced(name, epoch))

    def take(self, name: str, owner: str, epoch: int | None) -> tuple[int, list[int], bool]:
        session = self._session(name)
        if epoch is None and session.holder is not None:
            raise SessionHeld(name, session.holder, 0)
        if epoch is not None and epoch != session.epoch:
            raise StaleEpoch(name, session.epoch)
        session.epoch += 1
        session.owner = owner
        self._hold(session)
        return session.epoch, session.prompt + session.generated, session.finished

    def finish(self, name: str, epoch: int) -> None:
        session = self._fenced(name, epoch)
        session.finished = True
        session.holder = None

    def read_prefix(self, name: str, length: int) -> list[int]:
        session = self._session(name)
        return (session.prompt + session.generated)[:length]

    def _session(self, name: str) -> ModelSession:
        if name not in self.sessions:
            raise SessionNotFound
        return self.sessions[name]

    def _fenced(self, name: str, epoch: int) -> ModelSession:
        session = self._session(name)
        if epoch != session.epoch:
            raise StaleEpoch(name, session.epoch)
        return session

    def _hold(self, session: ModelSession) -> None:
        if not session.finished:
            session.holder = session.owner


def describe(error: SessionError) -> tuple[Any, ...]:
    return (type(error), getattr(error, "current_epoch", None), getattr(error, "owner", None))


class SessionMachine(RuleBasedStateMachine):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.redis = Redis.from_url(url)
        self.store = SessionStore.from_url(url, timeout_s=10, lease_ms=600_000)
        self.model = ModelStore()
        self.history = uuid.uuid4().hex
        # By session and owner: the epoch each last held, stale after a take-over.
        self.known_epochs: dict[tuple[str, str], int] = {}

    def teardown(self) -> None:
        self.runner.run(self.store.aclose())
        self.runner.run(self.redis.aclose())
        self.runner.close()

    def session_id(self, name: str) -> str:
        return f"{self.history}-{name}"

    def both(self, expected: Callable[[], Any], actual: Awaitable[Any]) -> Any:
        """Return what both answer; each answer may be an error."""

        async def answer() -> Any:
            try:
                return await actual
            except SessionError as error:
                return describe(error)

        try:
            wanted = expected()
        except SessionError as error:
            wanted = describe(error)
        assert self.runner.run(answer()) == wanted
        return wanted

    @initialize()
    def begin(self) -> None:
        self.create("x", "a", [5])

    @rule(name=SESSIONS, owner=OWNERS, prompt=TOKENS.filter(bool))
    def create(self, name: str, owner: str, prompt: list[int]) -> None:
        self.both(
            lambda: self.model.create(name, owner, prompt),
            self.store.create(self.session_id(name), owner=owner, request=b"", prompt=prompt),
        )

    @rule(
        name=SESSIONS,
        owner=OWNERS,
        back=st.integers(-1, 3),
        repeated=st.integers(0, 3),
        new=TOKENS,
    )
    def append(self, name: str, owner: str, back: int, repeated: int, new: list[int]) -> None:
        """Append from ``back`` before the end: first what is stored there, then new tokens."""
        session = self.model.sessions.get(name)
        stored = session.generated if session else []
        first_index = max(0, len(stored) - back)
        token_ids = stored[first_index : first_index + repeated] + new
        epoch = self.known_epochs.get((name, owner), 1)
        self.both(
            lambda: self.model.append(name, epoch, first_index, token_ids),
            self.store.append(
                self.session_id(name), epoch=epoch, first_index=first_index, token_ids=token_ids
            ),
        )

    @rule(name=SESSIONS, owner=OWNERS)
    def renew(self, name: str, owner: str) -> None:
        epoch = self.known_epochs.get((name, owner), 1)
        self.both(
            lambda: self.model.renew(name, epoch),
            self.store.renew(self.session_id(name), epoch=epoch),
        )

    @rule(name=SESSIONS, owner=OWNERS, lag=st.none() | st.integers(0, 1))
    def take(self, name: str, owner: str, lag: int | None) -> None:
        """Take with the epoch as it was ``lag`` take-overs ago, or with none."""
        current = self.model.sessions[name].epoch if name in self.model.sessions else 1
        epoch = None if lag is None else current - lag

        async def actual() -> tuple[int, list[int], bool]:
            record = await self.store.take(self.session_id(name), owner=owner, epoch=epoch)
            return record.epoch, list(record.token_ids), record.finished

        answer = self.both(lambda: self.model.take(name, owner, epoch), actual())
        if isinstance(answer[0], int):
            self.known_epochs[name, owner] = answer[0]

    @rule(name=SESSIONS, owner=OWNERS)
    def finish(self, name: str, owner: str) -> None:
        epoch = self.known_epochs.get((name, owner), 1)
        self.both(
            lambda: self.model.finish(name, epoch),
            self.store.finish(self.session_id(name), epoch=epoch),
        )

    @rule(name=SESSIONS, length=st.integers(1, 10))
    def read_prefix(self, name: str, length: int) -> None:
        async def actual() -> list[int]:
            return list(await self.store.read_prefix(self.session_id(name), length))

        self.both(lambda: self.model.read_prefix(name, length), actual())

    @rule(name=SESSIONS)
    def lease_runs_out(self, name: str) -> None:
        self.runner.run(self.redis.delete(f"specmesh:{{{self.session_id(name)}}}:lease"))
        if name in self.model.sessions:
            self.model.sessions[name].holder = None

    @rule()
    def scripts_are_lost(self) -> None:
        self.runner.run(self.redis.script_flush())

    @invariant()
    def all_committed_tokens_are_stored(self) -> None:
        for name, session in self.model.sessions.items():
            tokens = self.runner.run(self.store.read_prefix(self.session_id(name), 1000))
            assert list(tokens) == session.prompt + session.generated

    @invariant()
    def lease_names_the_holder(self) -> None:
        for name, session in self.model.sessions.items():
            key = f"specmesh:{{{self.session_id(name)}}}:lease"
            holder = self.runner.run(self.redis.get(key))
            assert holder == (session.holder.encode() if session.holder else None)

    @invariant()
    def everything_expires(self) -> None:
        for name in self.model.sessions:
            for key in ("session", "tokens", "lease"):
                ttl = self.runner.run(self.redis.ttl(f"specmesh:{{{self.session_id(name)}}}:{key}"))
                assert ttl != -1, f"{key} has no expiry"


def test_any_history_agrees_with_the_model(redis_server: RedisServer) -> None:
    run_state_machine_as_test(
        lambda: SessionMachine(redis_server.url),
        settings=settings(max_examples=60, stateful_step_count=40, deadline=None),
    )
