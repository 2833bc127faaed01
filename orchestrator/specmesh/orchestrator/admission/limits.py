"""How much one identity may ask for: decided without a clock, times are passed in.

Work is paid for after it was done: an answer that has begun is finished, and while an identity owes
something it begins no other. What a request itself brings to do, reading it, is paid for before.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from specmesh.serving.errors import ResourceExhaustedStatus

MINUTE = 60.0
BUSY_SECONDS = 1.0
"""When to come again if too many answers are running: nobody knows when one of them ends."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What each identity may use; None sets no limit."""

    answers: int | None = None
    """Answers at once."""
    tokens_per_minute: int | None = None
    """Output tokens."""
    verified_nodes_per_minute: int | None = None
    """Nodes of the trees sent to verifiers, roots included: positions that the target computes."""
    request_bytes_per_minute: int | None = None
    """Bytes of requests: of prompts, and of all else that is tokenized, detokenized or rendered."""


class Meter(Protocol):
    """Counts what an answer has used so far."""

    @property
    def num_output_tokens(self) -> int:
        """Tokens sent to the client."""

    @property
    def num_target_tokens(self) -> int:
        """Nodes sent to verifiers."""


class Bucket:
    """An allowance that is renewed evenly and may be overdrawn (a token bucket).

    It holds what a minute brings at most.
    """

    def __init__(self, per_minute: int | None, now: float) -> None:
        self._most = inf if per_minute is None else float(per_minute)
        self._rate = self._most / MINUTE
        self._level = self._most
        self._at = now

    def spend(self, amount: int, now: float) -> None:
        """Take ``amount``, also if less is there, as if it had been taken evenly since the last
        time."""
        if self._most < inf:
            renewed = (now - self._at) * self._rate
            self._level = min(self._most, self._level + renewed - amount)
        self._at = now

    @property
    def debt_s(self) -> float:
        """After how many seconds something is there again; 0 if it is."""
        return 0.0 if self._level > 0 else (1 - self._level) / self._rate

    @property
    def is_full(self) -> bool:
        """Whether it is as if nothing had ever been taken."""
        return self._level >= self._most


@dataclass(slots=True)
class _Running:
    """An answer, and how much of what its meter shows was paid for."""

    meter: Meter
    num_output_tokens: int = 0
    num_target_tokens: int = 0


@dataclass(slots=True)
class _Account:
    tokens: Bucket
    nodes: Bucket
    request_bytes: Bucket
    running: dict[int, _Running] = field(default_factory=dict)

    def settle(self, now: float) -> None:
        """Pay for what the running answers have used since the last time."""
        output = target = 0
        for answer in self.running.values():
            output -= answer.num_output_tokens
            target -= answer.num_target_tokens
            answer.num_output_tokens = answer.meter.num_output_tokens
            answer.num_target_tokens = answer.meter.num_target_tokens
            output += answer.num_output_tokens
            target += answer.num_target_tokens
        self.tokens.spend(output, now)
        self.nodes.spend(target, now)
        self.request_bytes.spend(0, now)

    def is_idle(self, now: float) -> bool:
        """Whether it may be forgotten."""
        self.settle(now)
        buckets = (self.tokens, self.nodes, self.request_bytes)
        return not self.running and all(bucket.is_full for bucket in buckets)


class Ledger:
    """What each identity has used of its limits.

    Identities that have used nothing for long enough are forgotten.
    """

    def __init__(self, limits: Quota) -> None:
        self._limits = limits
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    @property
    def num_identities(self) -> int:
        """How many are remembered."""
        return len(self._accounts)

    def begin(self, identity: str, meter: Meter, now: float, num_request_bytes: int = 0) -> None:
        """Let an answer begin, whose use ``meter`` counts until ``end``.

        Raises ``ResourceExhaustedStatus`` with reason LIMIT_REACHED.
        """
        account = self._settled(identity, now)
        limits = self._limits
        if limits.answers is not None and len(account.running) >= limits.answers:
            raise _reached("answers", limits.answers, BUSY_SECONDS)
        _check("tokens_per_minute", limits.tokens_per_minute, account.tokens)
        _check("verified_nodes_per_minute", limits.verified_nodes_per_minute, account.nodes)
        self._read(account, num_request_bytes, now)
        account.running[id(meter)] = _Running(meter)

    def read(self, identity: str, num_request_bytes: int, now: float) -> None:
        """Let a request be read that asks for no answer.

        Raises ``ResourceExhaustedStatus`` with reason LIMIT_REACHED.
        """
        self._read(self._settled(identity, now), num_request_bytes, now)

    def end(self, identity: str, meter: Meter, now: float) -> None:
        """Pay for the rest of an answer that is over."""
        account = self._accounts[identity]
        account.settle(now)
        del account.running[id(meter)]

    def _read(self, account: _Account, num_request_bytes: int, now: float) -> None:
        most = self._limits.request_bytes_per_minute
        _check("request_bytes_per_minute", most, account.request_bytes)
        account.request_bytes.spend(num_request_bytes, now)

    def _settled(self, identity: str, now: float) -> _Account:
        self._forget_idle(now)
        if identity not in self._accounts:
            self._accounts[identity] = _Account(
                Bucket(self._limits.tokens_per_minute, now),
                Bucket(self._limits.verified_nodes_per_minute, now),
                Bucket(self._limits.request_bytes_per_minute, now),
            )
        account = self._accounts[identity]
        account.settle(now)
        return account

    def _forget_idle(self, now: float) -> None:
        """Look at two of the accounts, in turns: they cannot grow faster than they are swept."""
        for _ in range(min(2, len(self._accounts))):
            identity, account = self._accounts.popitem(last=False)
            if not account.is_idle(now):
                self._accounts[identity] = account


def _check(name: str, most: int | None, bucket: Bucket) -> None:
    if most is not None and (debt_s := bucket.debt_s):
        raise _reached(name, most, debt_s)


def _reached(name: str, most: int, retry_after_s: float) -> ResourceExhaustedStatus:
    return ResourceExhaustedStatus(
        "LIMIT_REACHED",
        f"this identity has reached its limit of {most} {name.replace('_', ' ')}",
        {"limit": name, "most": str(most)},
        retry_after_s=retry_after_s,
    )
