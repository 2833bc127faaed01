"""A simulated Redis at the level of the client that ``SessionStore`` works with.

A command may be late, also behind others that were sent after it; its reply may be lost; a
restart may lose all, or what was written last.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

import redis.exceptions
from tests.schedules import lua
from tests.schedules.clock import Process
from tests.schedules.keyspace import Keyspace

Work = tuple[Callable[[], Any], Any]
"""What a command does, and who sends it."""

Hint = dict[bytes, bytes] | bytes

Written = Callable[[dict[bytes, Any], dict[bytes, Any], Any], None]
"""Told the keys before and after a script that changed them, and who ran it."""

_KEPT = 12


class Redis:
    """The server."""

    def __init__(
        self,
        rng: random.Random,
        latency_s: float,
        written: Written,
        trace: Callable[..., None],
    ) -> None:
        self.latency_s = latency_s
        self.late = 0.0
        """How often a command or its reply takes up to ``late_s`` longer."""
        self.late_s = 0.0
        self.lost = 0.0
        """How often a connection is lost with a command: half of them have run."""
        self.garbage: Callable[[], Hint] | None = None
        """What somebody else writes in place of a hint, whenever one is about to be read."""
        self.process = Process("redis")
        self.rng = rng
        self.trace = trace
        self._written = written
        self._loop = asyncio.get_running_loop()
        self.keys = Keyspace(self._loop.time)
        self._snapshots: deque[Any] = deque(maxlen=_KEPT)
        self._waiting: dict[asyncio.Future[Any], Any] = {}
        self._scripts: dict[str, str] = {}

    def calm(self) -> None:
        """Work well from now on."""
        self.late = self.lost = 0.0

    def kill(self) -> None:
        """Drop dead, and all connections with it."""
        self.process.kill()
        for future, context in list(self._waiting.items()):
            error = redis.exceptions.ConnectionError("Connection closed by server.")
            self._loop.call_later(self.latency_s, _fail, future, error, context=context)

    def restart(self, num_lost: int | None) -> None:
        """Come back, without the last ``num_lost`` writes; None: without anything."""
        if self.process.alive:
            return
        self.process = Process("redis")
        self._scripts.clear()
        if num_lost is None:
            self.keys = Keyspace(self._loop.time)
            self._snapshots.clear()
        elif num_lost and self._snapshots:
            for _ in range(min(num_lost, len(self._snapshots))):
                snapshot = self._snapshots.pop()
            self.keys.restore(snapshot)

    def damage(self) -> None:
        """Have something else write to a session."""
        values = self.keys.values
        sessions = [key for key in values if key.endswith(b":session")]
        if not sessions:
            return
        session = self.rng.choice(sessions)
        fields, tokens = dict(values[session]), session.removesuffix(b"session") + b"tokens"
        held = values.get(tokens, b"")
        match self.rng.randrange(7):
            case 0:
                fields[b"epoch"] = self.rng.choice((b"999999", b"%d" % 2**60, b"first"))
            case 1:
                fields[b"request"] = self.rng.choice((b"", b"\xff", fields[b"request"][:-1]))
            case 2:
                fields[b"num_prompt_tokens"] = self.rng.choice((b"0", b"2", b"1000", b"few"))
            case 3:
                held = held[: self.rng.randrange(len(held) + 1)]
            case 4:
                held += self.rng.choice((b"\x01", b"\xff\xff\xff\x0f"))
            case 5:
                held = b"\xff\xff\xff\x0f" + held[4:]
            case 6:
                held = held[:-4] + b"\xff\xff\xff\x0f"
        self.trace("redis", "is damaged", session)
        values[session], values[tokens] = fields, held

    async def run(self, work: Callable[[], Any], who: Any, what: str) -> Any:
        """Send a command and await its reply."""
        (reply,) = await self.run_all([(work, who)], what)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def run_all(self, works: Sequence[Work], what: str) -> list[Any]:
        """Send commands, each with who sends it, and await their replies, which may be errors."""
        future = self._loop.create_future()
        context = copy_context()
        self._waiting[future] = context
        try:
            self._send(future, context, works, what)
            replies: list[Any] = await future
            return replies
        finally:
            self._waiting.pop(future, None)

    def load(self, script: str) -> str:
        """Know a script from now on."""
        self._scripts[sha_of(script)] = script
        return sha_of(script)

    def script(self, sha: str) -> str:
        """The script of that name. Raises ``NoScriptError``."""
        if sha not in self._scripts:
            raise redis.exceptions.NoScriptError("No matching script.")
        return self._scripts[sha]

    def run_script(self, script: str, names: Sequence[bytes], words: Sequence[bytes]) -> Any:
        """What the script returns."""
        self.spoil(names)
        return lua.run(script, names, words, self.keys.call)

    def _send(self, future: Any, context: Any, works: Sequence[Work], what: str) -> None:
        if not self.process.alive:
            error = redis.exceptions.ConnectionError("Connection refused.")
            self._loop.call_later(self._delay(), _fail, future, error)
            return
        num_run = len(works)
        if self.lost and self.rng.random() < self.lost:
            num_run = self.rng.randint(0, len(works))
            self.trace("redis", "loses", what, f"of which {num_run} run")
            error = redis.exceptions.ConnectionError("Connection reset by peer.")
            self._loop.call_later(self._delay() * 2, _fail, future, error)
        if num_run:
            self._loop.call_later(
                self._delay(),
                *(self._perform, future, context, works[:num_run], what),
                context=self.process.context,
            )

    def _delay(self) -> float:
        seconds = self.latency_s * (0.5 + self.rng.random())
        if self.late and self.rng.random() < self.late:
            seconds += self.rng.random() * self.late_s
        return seconds

    def spoil(self, names: Sequence[bytes]) -> None:
        """Replace the hints among ``names`` with garbage, if somebody does that now."""
        if self.garbage is not None:
            for name in names:
                if name.endswith(b":holders"):
                    self.keys.values[name] = self.garbage()

    def _perform(self, future: Any, context: Any, works: Sequence[Work], what: str) -> None:
        replies = [self._performed(work, who) for work, who in works]
        self.trace("redis", what, *replies)
        self._loop.call_later(self._delay(), _answer, future, replies, context=context)

    def _performed(self, work: Callable[[], Any], who: Any) -> Any:
        before = self.keys.snapshot()
        try:
            reply = work()
        except redis.exceptions.RedisError as error:
            reply = error
        if self.keys.values != before[0]:
            self._snapshots.append(before)
            self._written(before[0], self.keys.values, who)
        return reply


class Client:
    """What stands in for ``redis.asyncio.Redis``; ``who`` names whose commands they are."""

    def __init__(self, server: Redis, who: Callable[[], Any]) -> None:
        self._server = server
        self._who = who
        self.connection_pool = NoConnections()

    def register_script(self, script: str) -> Script:
        """See ``redis.asyncio.Redis``."""
        return Script(self._server, script, self._who)

    async def script_load(self, script: str) -> str:
        """See ``redis.asyncio.Redis``."""
        loaded: str = await self._server.run(
            lambda: self._server.load(script), self._who(), "script load"
        )
        return loaded

    def pipeline(self, *, transaction: bool) -> Pipeline:
        """See ``redis.asyncio.Redis``."""
        assert not transaction
        return Pipeline(self._server, self._who)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        def called(*args: Any) -> Awaitable[Any]:
            words = [name.encode(), *map(_encoded, args)]
            return self._server.run(
                lambda: self._server.keys.call(*words), self._who(), f"{name} {args}"
            )

        return called

    async def aclose(self) -> None:
        """See ``redis.asyncio.Redis``."""


class NoConnections:
    """What stands in for the pool of a client whose commands need no connection."""

    async def get_connection(self) -> None:
        """See ``redis.asyncio.BlockingConnectionPool``."""

    async def release(self, connection: None) -> None:
        """See ``redis.asyncio.BlockingConnectionPool``."""


class Script:
    """A script, which the server knows or not."""

    def __init__(self, server: Redis, script: str, who: Callable[[], Any]) -> None:
        self._server = server
        self._script = script
        self._who = who
        self.sha = sha_of(script)

    def __call__(self, keys: Sequence[Any] = (), args: Sequence[Any] = ()) -> Awaitable[Any]:
        names, words = [_encoded(key) for key in keys], [_encoded(arg) for arg in args]
        work = partial(self._server.run_script, self._script, names, words)
        return self._server.run(work, self._who(), _told(words))


class Pipeline:
    """Calls of scripts that go to the server together, and are lost together."""

    def __init__(self, server: Redis, who: Callable[[], Any]) -> None:
        self._server = server
        self._who = who
        self._calls: list[tuple[list[Any], Any]] = []

    def execute_command(self, *command: Any) -> None:
        """See ``redis.asyncio.Redis``."""
        assert command[0] == "EVALSHA"
        self._calls.append(([*command[1:]], self._who()))

    async def execute(self, *, raise_on_error: bool) -> list[Any]:
        """See ``redis.asyncio.Redis``."""
        assert not raise_on_error
        said: list[Any] = await self._server.run_all(
            [(partial(self._perform, words), who) for words, who in self._calls],
            "; ".join(_told([_encoded(each) for each in words[4:]]) for words, _ in self._calls),
        )
        return said

    def _perform(self, words: list[Any]) -> Any:
        sha, num_keys, *rest = words
        encoded = [_encoded(each) for each in rest]
        script = self._server.script(sha)
        return self._server.run_script(script, encoded[:num_keys], encoded[num_keys:])


def sha_of(script: str) -> str:
    """What a server calls it."""
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


def _told(words: Sequence[bytes]) -> str:
    return f"{b' '.join(words[:1]).decode()} {[_short(word) for word in words[1:]]}"


def _answer(future: asyncio.Future[Any], reply: Any) -> None:
    if not future.done():
        future.set_result(reply)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _encoded(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _short(word: bytes) -> str:
    text = word.hex() if any(byte < 32 or byte > 126 for byte in word) else word.decode()
    return text if len(text) <= 48 else f"{text[:48]}..({len(word)})"
