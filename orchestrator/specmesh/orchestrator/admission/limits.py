"""Limits on the work of one identity, decided without a clock: times are passed in.

Work is charged after it was done, because an answer that has begun is always finished; an identity
in debt cannot begin another answer. The bytes of a request are charged before it is read.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from specmesh.serving.errors import ResourceExhaustedStatus

MINUTE = 60.0
BUSY_SECONDS = 1.0
"""Retry delay if too many answers are running: their ends cannot be predicted."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of each identity; None means no limit."""

    answers: int | None = None
    """Concurrent answers."""
    tokens_per_minute: int | None = None
    """Output tokens."""
    verified_nodes_per_minute: int | None = None
    """Nodes of the trees sent to verifiers, roots included: positions that the target computes."""
    request_bytes_per_minute: int | None = None
    """Bytes of prompts and of everything else that is tokenized, detokenized or rendered."""


class Meter(Protocol):
    """Counts what an answer has used so far."""

    @property
    def num_output_tokens(self) -> int:
        """Tokens sent to the client."""

    @property
    def num_target_tokens(self) -> int:
        """Nodes sent to verifiers."""


class Bucket:
    """A token bucket: an allowance that refills evenly and may be overdrawn.

    It holds at most what one minute adds.
    """

    def __init__(self, per_minute: int | None, now: float) -> None:
        self._most = inf if per_minute is None else float(per_minute)
        self._rate = self._most / MINUTE
        self._level = self._most
        self._at = now

    def spend(self, amount: int, now: float) -> None:
        """Take ``amount``, even if less is left. The amount counts as spent evenly since the last
        call, so that the refill of that time is not lost in a full bucket."""
        if self._most < inf:
            renewed = (now - self._at) * self._rate
            self._level = min(self._most, self._level + renewed - amount)
        self._at = now

    @property
    def is_limited(self) -> bool:
        """True if it holds a limited amount."""
        return self._most < inf

    @property
    def debt_s(self) -> float:
        """Seconds until the bucket is above zero again; 0 if it is."""
        return 0.0 if self._level > 0 else (1 - self._level) / self._rate

    @property
    def is_full(self) -> bool:
        """True if the bucket is as full as if nothing had ever been taken."""
        return self._level >= self._most


@dataclass(slots=True)
class _Running:
    """A running answer, with the part of its meter that has been charged."""

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
        """Charge what the running answers have used since the last call, if that is limited: there
        may be a thousand, and many requests to refuse."""
        output = target = 0
        is_metered = self.tokens.is_limited or self.nodes.is_limited
        for answer in self.running.values() if is_metered else ():
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
        """Return whether the account may be forgotten: nothing runs and all buckets are full."""
        if self.running:
            return False
        self.settle(now)
        return all(bucket.is_full for bucket in (self.tokens, self.nodes, self.request_bytes))


class Ledger:
    """The use of each identity against its limits.

    Identities whose allowances are full again are forgotten.
    """

    def __init__(self, limits: Quota) -> None:
        self._limits = limits
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    @property
    def num_identities(self) -> int:
        """The number of identities that are remembered."""
        return len(self._accounts)

    def begin(self, identity: str, meter: Meter, now: float, num_request_bytes: int = 0) -> None:
        """Begin an answer, whose use ``meter`` counts until ``end``.

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
        """Charge the bytes of a request that asks for no answer.

        Raises ``ResourceExhaustedStatus`` with reason LIMIT_REACHED.
        """
        self._read(self._settled(identity, now), num_request_bytes, now)

    def end(self, identity: str, meter: Meter, now: float) -> None:
        """Charge the rest of an answer that has ended."""
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
        """Check two accounts, in rotation: as at most one is added each time, idle ones can't pile
        up."""
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
