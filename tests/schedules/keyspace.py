"""The keys of a simulated Redis, and the commands that our scripts use on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis.exceptions import ResponseError

Value = bytes | dict[bytes, bytes]


class Keyspace:
    """Strings, hashes and sorted sets that expire; ``now`` tells the time in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.values: dict[bytes, Value] = {}
        self._expiry: dict[bytes, float] = {}

    def snapshot(self) -> tuple[dict[bytes, Value], dict[bytes, float]]:
        """Everything, to be given to ``restore``."""
        copies = {
            key: dict(value) if isinstance(value, dict) else value
            for key, value in self.values.items()
        }
        return copies, dict(self._expiry)

    def restore(self, snapshot: tuple[dict[bytes, Value], dict[bytes, float]]) -> None:
        """Be as then."""
        self.values, self._expiry = snapshot

    def call(self, name: bytes, *args: bytes) -> Any:
        """A command, by its name in any case."""
        return getattr(self, f"_{name.decode().lower()}")(*args)

    def _find(self, key: bytes) -> Value | None:
        if (expiry := self._expiry.get(key)) is not None and expiry <= self._now():
            self._del(key)
        return self.values.get(key)

    def _string(self, key: bytes) -> bytes:
        value = self._find(key)
        if isinstance(value, dict):
            raise _wrong_type()
        return value or b""

    def _hash(self, key: bytes) -> dict[bytes, bytes]:
        value = self._find(key)
        if isinstance(value, bytes):
            raise _wrong_type()
        return {} if value is None else value

    def _get(self, key: bytes) -> Value | None:
        return self._find(key)

    def _set(self, key: bytes, value: bytes, *options: bytes) -> bytes | None:
        words = [option.upper() for option in options]
        if b"NX" in words and self._find(key) is not None:
            return None
        self.values[key] = value
        if b"KEEPTTL" not in words:
            self._expiry.pop(key, None)
        for word, unit in ((b"PX", 1e-3), (b"EX", 1.0)):
            if word in words:
                self._expiry[key] = self._now() + int(options[words.index(word) + 1]) * unit
        return b"OK"

    def _del(self, *keys: bytes) -> int:
        removed = sum(self.values.pop(key, None) is not None for key in keys)
        for key in keys:
            self._expiry.pop(key, None)
        return removed

    _unlink = _del

    def _exists(self, *keys: bytes) -> int:
        return sum(self._find(key) is not None for key in keys)

    def _expire(self, key: bytes, seconds: bytes) -> int:
        return self._pexpire(key, b"%d" % (float(seconds) * 1000))

    def _pexpire(self, key: bytes, milliseconds: bytes) -> int:
        if self._find(key) is None:
            return 0
        self._expiry[key] = self._now() + float(milliseconds) / 1e3
        return 1

    def _pttl(self, key: bytes) -> int:
        if self._find(key) is None:
            return -2
        expiry = self._expiry.get(key)
        return -1 if expiry is None else round((expiry - self._now()) * 1e3)

    def _ttl(self, key: bytes) -> int:
        return max(-2, self._pttl(key) // 1000)

    def _strlen(self, key: bytes) -> int:
        return len(self._string(key))

    def _getrange(self, key: bytes, start: bytes, end: bytes) -> bytes:
        value, first, last = self._string(key), int(start), int(end)
        if last < 0:
            last += len(value)
        return value[max(0, first if first >= 0 else first + len(value)) : last + 1]

    def _setrange(self, key: bytes, offset: bytes, new: bytes) -> int:
        value, at = self._string(key), int(offset)
        self.values[key] = value[:at].ljust(at, b"\0") + new + value[at + len(new) :]
        return len(self.values[key])

    def _append(self, key: bytes, new: bytes) -> int:
        self.values[key] = self._string(key) + new
        return len(self.values[key])

    def _hget(self, key: bytes, field: bytes) -> bytes | None:
        return self._hash(key).get(field)

    def _hmget(self, key: bytes, *fields: bytes) -> list[bytes | None]:
        values = self._hash(key)
        return [values.get(field) for field in fields]

    def _hgetall(self, key: bytes) -> list[bytes]:
        return [word for pair in self._hash(key).items() for word in pair]

    def _hset(self, key: bytes, *pairs: bytes) -> int:
        values = dict(self._hash(key))
        added = len(values)
        values.update(zip(pairs[::2], pairs[1::2], strict=True))
        self.values[key] = values
        return len(values) - added

    def _hdel(self, key: bytes, *fields: bytes) -> int:
        values = dict(self._hash(key))
        removed = sum(values.pop(field, None) is not None for field in fields)
        self.values[key] = values
        return removed

    def _hincrby(self, key: bytes, field: bytes, by: bytes) -> int:
        number = int(self._hash(key).get(field, b"0")) + int(by)
        self._hset(key, field, b"%d" % number)
        return number

    def _time(self) -> list[bytes]:
        seconds, rest = divmod(self._now(), 1)
        return [b"%d" % seconds, b"%d" % (rest * 1e6)]

    def _zadd(self, key: bytes, score: bytes, member: bytes) -> int:
        return self._hset(key, member, score)

    def _zrangebyscore(self, key: bytes, least: bytes, most: bytes) -> list[bytes]:
        return [
            member for member in self._by_score(key) if self._is_within(key, member, least, most)
        ]

    def _zrevrangebyscore(
        self, key: bytes, most: bytes, least: bytes, *limit: bytes
    ) -> list[bytes]:
        _, offset, count = limit
        found = self._zrangebyscore(key, least, most)[::-1]
        return found[int(offset) :][: int(count)]

    def _zremrangebyscore(self, key: bytes, least: bytes, most: bytes) -> int:
        return self._zrem(key, self._zrangebyscore(key, least, most))

    def _zremrangebyrank(self, key: bytes, first: bytes, last: bytes) -> int:
        members = self._by_score(key)
        end = int(last) + (len(members) if int(last) < 0 else 0)
        return self._zrem(key, members[int(first) : max(0, end + 1)])

    def _zrem(self, key: bytes, members: list[bytes]) -> int:
        removed = self._hdel(key, *members)
        if not self._hash(key):
            self._del(key)
        return removed

    def _by_score(self, key: bytes) -> list[bytes]:
        scores = self._hash(key)
        return sorted(scores, key=lambda member: (float(scores[member]), member))

    def _is_within(self, key: bytes, member: bytes, least: bytes, most: bytes) -> bool:
        score = float(self._hash(key)[member])
        lowest, highest = (float(bound.lstrip(b"(")) for bound in (least, most))
        return (
            lowest <= score <= highest
            and not (least.startswith(b"(") and score == lowest)
            and not (most.startswith(b"(") and score == highest)
        )

    def _ping(self) -> bytes:
        return b"PONG"


def _wrong_type() -> ResponseError:
    return ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")
