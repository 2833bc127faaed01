"""One session, its client and its writers, whatever is lost, late or forgotten: the protocol
checked over the real script.

A writer is an orchestrator's log: it says tokens that nobody else says, tells its client, and
writes to the store, where each command runs at once, later, or twice, and its answer may be
lost. The client breaks off and asks for another stream under the next epoch; or it has lost all it
knew, and repeats its first request; or it cancels. The store may forget its latest writes, as after
a failover, or everything.
"""

from __future__ import annotations

import asyncio
import itertools
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
from tests.serving.acl import as_documented

from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.stored_session import (
    CANCELLED,
    Claim,
    Generated,
    SessionError,
    SessionNotFound,
    SessionStart,
    StaleEpoch,
    StoreConflict,
    StoredSessionCancelled,
    Writer,
    read_generated,
)

if TYPE_CHECKING:
    from tests.serving.conftest import RedisServer

PROMPT = (5, 6)
SECRET = b"secret"
FATES = st.sampled_from(["heard"] * 4 + ["unheard", "late", "twice"])
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
    is_named: bool = True
    """Whether the client has chosen the epoch."""
    number: int = field(default_factory=itertools.count(1).__next__)

    def say(self) -> None:
        self.tokens.append(self.number % 100_000 * 1000 + len(self.tokens))


class SessionMachine(RuleBasedStateMachine):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.redis = Redis.from_url(url)
        self.store = SessionStore.from_url(as_documented(url), timeout_s=10)
        claim = Claim(uuid.uuid4().hex, SECRET, owner="me")
        self.session = SessionStart(claim, model="m", request=b"r", prompt=PROMPT)
        self.keys = [f"specmesh:{{{self.session.session_id}}}:{n}" for n in ("session", "tokens")]
        self.late: list[Command] = []
        self.snapshot: list[bytes | None] = [None, None]
        self.received: list[int] = []
        self.logs: list[Log] = []
        self.writers_heard: dict[int, set[str]] = {}
        self.epoch = 1
        self.cancelled: tuple[Any, ...] | None = None

    def teardown(self) -> None:
        self.runner.run(self.store.aclose())
        self.runner.run(self.redis.aclose())
        self.runner.close()

    @initialize(fate=FATES)
    def begin(self, fate: str) -> None:
        self.logs.append(Log(Writer(1, "w1"), [], 0, None))
        self.writer_writes(0, fate)

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

    @rule(num=st.integers(1, 3), fate=FATES)
    def answer_goes_on(self, num: int, fate: str) -> None:
        self.writer_says(0, num)
        self.writer_writes(0, fate)
        for _ in range(num):
            self.client_hears()

    @rule(back=st.integers(0, 2), fate=FATES)
    def writer_finishes(self, back: int, fate: str) -> None:
        log = self.logs[max(0, len(self.logs) - 1 - back)]
        if log.fenced_off or log.num_stored != len(log.tokens):
            return
        num = len(log.tokens)
        outcome = self.run(
            lambda: self.store.finish(self.session.session_id, log.writer, num, str(num)), fate
        )
        self.note(log, outcome, len(log.tokens))

    def note(self, log: Log, outcome: object, num_stored: int) -> None:
        match outcome:
            case StaleEpoch() | StoredSessionCancelled():
                log.fenced_off = True
            case SessionNotFound() | StoreConflict():
                log.num_stored = None
            case "ok":
                log.num_stored = num_stored
                if not log.is_named:  # the store may choose again what it has forgotten
                    return
                self.writers_heard.setdefault(log.writer.epoch, set()).add(log.writer.writer_id)

    @rule(fate=FATES, num_orchestrators=st.integers(1, 2))
    def client_resumes(self, fate: str, num_orchestrators: int) -> None:
        """Under its next epoch; a proxy may have asked two orchestrators at once."""
        self.epoch += 1
        epoch = self.epoch
        received = Generated(tuple(self.received))
        outcome = None
        for number in range(num_orchestrators):
            writer = Writer(epoch, f"w{epoch}.{number}")
            heard = self.run(self.taking(epoch, writer.writer_id, received), fate)
            if isinstance(heard, tuple):
                assert outcome is None, "two orchestrators took one epoch"
                outcome = self.log_of(heard, is_named=True)
        if outcome is None:
            # Generate carries on from what was received, in a session of its own; here its
            # tokens are as good as another writer's that never stores anything.
            outcome = Log(Writer(epoch, "w-none"), list(self.received), len(self.received), None)
            outcome.fenced_off = True
        self.logs.append(outcome)

    def taking(self, epoch: int | None, writer_id: str, received: Generated) -> Command:
        return lambda: self.store.take(self.session.claim, epoch, writer_id, received)

    def log_of(self, taken: tuple[Writer, Generated], *, is_named: bool) -> Log:
        writer, generated = taken
        tokens = list(generated.token_ids)
        return Log(writer, tokens, len(self.received), len(tokens), is_named=is_named)

    @rule(fates=st.tuples(FATES, FATES), epoch=st.sampled_from([None, None, 1, 3]))
    def client_starts_again(self, fates: tuple[str, str], epoch: int | None) -> None:
        """With the request that began the session, by which alone it knows it."""
        writer_id = f"s{len(self.logs)}.{len(self.late)}"
        writer = Writer(epoch or 1, writer_id)
        begun = self.run(lambda: self.store.begin(self.session, writer, Generated()), fates[0])
        taken: Any = (writer, Generated()) if begun is True else None
        if begun is False:
            taken = self.run(self.taking(epoch, writer_id, Generated()), fates[1])
        if isinstance(taken, tuple):
            self.received = []
            self.logs.append(self.log_of(taken, is_named=False))
            self.epoch = max(self.epoch, taken[0].epoch)

    @precondition(lambda self: len(self.logs) > 2)
    @rule(fate=FATES)
    def client_cancels(self, fate: str) -> None:
        """Late in the day, for nothing goes on after that."""
        outcome = self.run(lambda: self.store.cancel(self.session.claim), fate)
        stored = self.runner.run(self.stored())
        if outcome == "ok" and stored[0] == CANCELLED.encode():
            self.cancelled = stored

    async def stored(self) -> tuple[bytes | None, bytes | None, bytes | None, bytes | None]:
        """How the session has ended, who writes it under which epoch, and its tokens; checks that
        it expires."""
        async with self.redis.pipeline(transaction=False) as pipeline:
            pipeline.hmget(self.keys[0], "ended", "writer", "epoch").get(self.keys[1])
            for key in self.keys:
                pipeline.ttl(key)
            (ended, writer, epoch), tokens, *ttls = await pipeline.execute()
        assert -1 not in ttls
        return ended, writer, epoch, tokens

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
        self.cancelled = None

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
        """Those of the writer that it names, in the order said, none of another mixed in; all of
        them once it is finished, and no others once it is cancelled."""

        seen = self.runner.run(self.stored())
        assert seen == self.cancelled or self.cancelled is None
        ended, writer, _, stored = seen
        if writer is None or stored is None:
            return
        tokens = list(read_generated(stored).token_ids)
        assert tokens[: len(PROMPT)] == list(PROMPT)
        generated = tokens[len(PROMPT) :]
        if ended not in {None, CANCELLED.encode()}:
            assert len(generated) == int(ended), "finished without all of its tokens"
        for log in self.logs:
            if log.writer.writer_id == writer.decode():
                assert log.tokens[: len(generated)] == generated


async def _outcome(command: Command) -> Any:
    try:
        answer = await command()
    except SessionError as error:
        return error
    return "ok" if answer is None else answer


def test_whatever_is_lost_one_writer_is_heard(redis_server: RedisServer) -> None:
    run_state_machine_as_test(
        lambda: SessionMachine(redis_server.url),
        settings=settings(max_examples=120, stateful_step_count=40, deadline=None),
    )
