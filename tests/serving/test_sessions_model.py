"""One session, its client and its writers, whatever is lost, late or forgotten: the protocol
checked over the real script.

A writer is an orchestrator's log: it says tokens that nobody else says, tells its client, and
writes to the store, where each command runs at once, later, or twice, and its answer may be
lost. The client breaks off and asks for another stream under the next epoch. The store may
forget its latest writes, as after a failover, or everything.
"""

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
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis.asyncio import Redis

from specmesh.serving.session import (
    Generated,
    Session,
    SessionError,
    SessionNotFound,
    StaleEpoch,
    StoreConflict,
    Writer,
    read_generated,
)
from specmesh.serving.sessions import SessionStore

if TYPE_CHECKING:
    from tests.serving.conftest import RedisServer

PROMPT = (5, 6)
SECRET = b"secret"
FATES = st.sampled_from(["heard", "heard", "unheard", "late", "twice"])
"""Of a command: its answer comes; is lost; it runs at some time to come; it runs now and again
then."""

Command = Callable[[], Awaitable[Any]]


@dataclass
class Log:
    """What one writer has said, and what it believes of the store."""

    writer: Writer
    tokens: list[int]
    num_told: int
    num_stored: int | None
    fenced_off: bool = False
    accepted: bool = field(default=False)

    def say(self) -> None:
        self.tokens.append(self.writer.epoch * 1000 + len(self.tokens))


class SessionMachine(RuleBasedStateMachine):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.redis = Redis.from_url(url)
        self.store = SessionStore.from_url(url, timeout_s=10)
        self.session = Session(uuid.uuid4().hex, SECRET, model="m", request=b"r", prompt=PROMPT)
        self.keys = [f"specmesh:{{{self.session.session_id}}}:{n}" for n in ("session", "tokens")]
        self.late: list[Command] = []
        self.snapshot: list[bytes | None] = [None, None]
        self.received: list[int] = []
        self.logs: list[Log] = []
        self.writers_heard: dict[int, set[str]] = {}

    def teardown(self) -> None:
        self.runner.run(self.store.aclose())
        self.runner.run(self.redis.aclose())
        self.runner.close()

    @initialize()
    def begin(self) -> None:
        self.logs.append(Log(Writer(1, "w1"), [], 0, None))

    @property
    def reading_from(self) -> Log:
        """The client hears the latest stream alone."""
        return self.logs[-1]

    def run(self, command: Command, fate: str) -> Any:
        """What the caller hears of ``command``: its answer, an error, or None if nothing."""
        if fate in {"late", "twice"}:
            self.late.append(command)
        if fate == "late":
            return None
        answer = self.runner.run(_outcome(command))
        return answer if fate == "heard" else None

    @rule(back=st.integers(0, 2), num=st.integers(1, 3))
    def writer_says(self, back: int, num: int) -> None:
        log = self.logs[max(0, len(self.logs) - 1 - back)]
        for _ in range(num):
            log.say()

    @rule()
    def client_hears(self) -> None:
        """Tokens may go out before they are stored."""
        log = self.reading_from
        if log.fenced_off or log.num_told == len(log.tokens):
            return
        token = log.tokens[log.num_told]
        assert log.num_told == len(self.received)
        log.num_told += 1
        self.received.append(token)

    @rule(back=st.integers(0, 2), fate=FATES)
    def writer_writes(self, back: int, fate: str) -> None:
        """As ``SessionLog`` does: what is new, or everything if the store lacks something."""
        log = self.logs[max(0, len(self.logs) - 1 - back)]
        if log.fenced_off:
            return
        tokens, start = tuple(log.tokens), log.num_stored
        if start is None:
            outcome = self.run(
                lambda: self.store.put(self.session, log.writer, Generated(tokens)), fate
            )
        else:
            outcome = self.run(
                lambda: self.store.append(
                    self.session.session_id,
                    log.writer,
                    first_index=start,
                    token_ids=tokens[start:],
                ),
                fate,
            )
        self.note(log, outcome, len(tokens))

    @rule(back=st.integers(0, 2), fate=FATES)
    def writer_finishes(self, back: int, fate: str) -> None:
        log = self.logs[max(0, len(self.logs) - 1 - back)]
        if log.fenced_off or log.num_stored != len(log.tokens):
            return
        outcome = self.run(lambda: self.store.finish(self.session.session_id, log.writer), fate)
        self.note(log, outcome, len(log.tokens))

    def note(self, log: Log, outcome: object, num_stored: int) -> None:
        match outcome:
            case StaleEpoch():
                log.fenced_off = True
            case SessionNotFound() | StoreConflict():
                log.num_stored = None
            case "ok":
                log.num_stored = num_stored
                self.writers_heard.setdefault(log.writer.epoch, set()).add(log.writer.writer_id)

    @rule(fate=FATES, num_orchestrators=st.integers(1, 2))
    def client_resumes(self, fate: str, num_orchestrators: int) -> None:
        """Under its next epoch; a proxy may have asked two orchestrators at once."""
        epoch = len(self.logs) + 1
        received = Generated(tuple(self.received))
        outcome = None
        for number in range(num_orchestrators):
            writer = Writer(epoch, f"w{epoch}.{number}")
            heard = self.run(self.taking(writer, received), fate)
            if isinstance(heard, Generated):
                assert outcome is None, "two orchestrators took one epoch"
                outcome = Log(
                    writer, list(heard.token_ids), len(self.received), len(heard.token_ids)
                )
        if outcome is None:
            # Generate carries on from what was received, in a session of its own; here its
            # tokens are as good as another writer's that never stores anything.
            outcome = Log(Writer(epoch, "w-none"), list(self.received), len(self.received), None)
            outcome.fenced_off = True
        self.logs.append(outcome)

    def taking(self, writer: Writer, received: Generated) -> Command:
        return lambda: self.store.take(self.session.session_id, SECRET, writer, received)

    @rule()
    def store_is_saved(self) -> None:
        """Up to here its replica has got, or its disk."""

        async def dump() -> list[bytes | None]:
            return [await self.redis.dump(key) for key in self.keys]

        self.snapshot = self.runner.run(dump())

    @rule(everything=st.booleans())
    def store_forgets(self, everything: bool) -> None:
        async def restore() -> None:
            await self.redis.delete(*self.keys)
            for key, saved in zip(self.keys, self.snapshot, strict=True):
                if saved is not None and not everything:
                    await self.redis.restore(key, 60_000, saved)
            await self.redis.script_flush()

        self.runner.run(restore())

    @precondition(lambda self: self.late)
    @rule(index=st.integers(0, 5))
    def late_command_runs(self, index: int) -> None:
        command = self.late.pop(index % len(self.late))
        self.runner.run(_outcome(command))

    @invariant()
    def client_has_what_its_writer_said(self) -> None:
        log = self.reading_from
        if not log.fenced_off:
            assert log.tokens[: len(self.received)] == self.received

    @invariant()
    def each_epoch_has_one_writer(self) -> None:
        assert all(len(writers) == 1 for writers in self.writers_heard.values())

    @invariant()
    def store_has_one_writers_tokens(self) -> None:
        """Those of the writer that it names, in the order said, none of another mixed in."""

        async def read() -> tuple[bytes | None, bytes | None]:
            return (
                await self.redis.hget(self.keys[0], "writer"),
                await self.redis.get(self.keys[1]),
            )

        writer, stored = self.runner.run(read())
        if writer is None or stored is None:
            return
        tokens = list(read_generated(stored).token_ids)
        assert tokens[: len(PROMPT)] == list(PROMPT)
        generated = tokens[len(PROMPT) :]
        for log in self.logs:
            if log.writer.writer_id == writer.decode():
                assert log.tokens[: len(generated)] == generated

    @invariant()
    def everything_expires(self) -> None:
        async def ttls() -> list[int]:
            return [await self.redis.ttl(key) for key in self.keys]

        assert -1 not in self.runner.run(ttls())


async def _outcome(command: Command) -> Any:
    try:
        answer = await command()
    except SessionError as error:
        return error
    return "ok" if answer is None else answer


def test_whatever_is_lost_one_writer_is_heard(redis_server: RedisServer) -> None:
    run_state_machine_as_test(
        lambda: SessionMachine(redis_server.url),
        settings=settings(max_examples=80, stateful_step_count=40, deadline=None),
    )
