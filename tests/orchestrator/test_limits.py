"""Limits of each identity."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmesh.orchestrator.admission.limits import MINUTE, Bucket, Ledger, Quota
from specmesh.serving.errors import ResourceExhaustedStatus, to_status


@dataclass(eq=False)
class Meter:
    num_output_tokens: int = 0
    num_target_tokens: int = 0


def reached(ledger: Ledger, identity: str, now: float) -> tuple[str, float | None]:
    with pytest.raises(ResourceExhaustedStatus) as raised:
        ledger.begin(identity, Meter(), now)
    assert raised.value.reason == "LIMIT_REACHED"
    return raised.value.metadata["limit"], raised.value.retry_after_s


def test_nobody_is_limited_without_limits():
    ledger = Ledger(Quota())
    for _ in range(1000):
        ledger.begin("a", Meter(10**9, 10**9), 0)


class Unread:
    """A meter that must not be read."""

    @property
    def num_output_tokens(self) -> int:
        raise AssertionError

    num_target_tokens = num_output_tokens


@pytest.mark.parametrize("limits", [Quota(), Quota(answers=3, request_bytes_per_minute=60)])
def test_running_answers_are_not_looked_at_if_nothing_limits_their_tokens(limits: Quota):
    """A request costs as little however many run."""
    ledger, meters = Ledger(limits), [Unread() for _ in range(3)]
    for meter in meters:
        ledger.begin("a", meter, 0)
    ledger.read("a", 1, 0)
    for meter in meters:
        ledger.end("a", meter, 0)


def test_answers_at_once_are_limited_for_each_identity():
    ledger = Ledger(Quota(answers=2))
    first = Meter()
    ledger.begin("a", first, 0)
    ledger.begin("a", Meter(), 0)
    assert reached(ledger, "a", 0)[0] == "answers"
    ledger.begin("", Meter(), 0)
    ledger.end("a", first, 1)
    ledger.begin("a", Meter(), 1)
    assert reached(ledger, "a", 1)[0] == "answers"


@pytest.mark.parametrize(
    ("limits", "used"),
    [
        (Quota(tokens_per_minute=60), Meter(num_output_tokens=90)),
        (Quota(verified_nodes_per_minute=60), Meter(num_target_tokens=90)),
    ],
)
def test_who_has_overdrawn_begins_again_when_the_debt_is_paid(limits: Quota, used: Meter):
    ledger, meter = Ledger(limits), Meter()
    ledger.begin("a", meter, 0)
    vars(meter).update(vars(used))
    ledger.end("a", meter, 0)
    name, retry_after_s = reached(ledger, "a", 0)
    assert name in {"tokens_per_minute", "verified_nodes_per_minute"}
    assert retry_after_s == pytest.approx(31)
    assert reached(ledger, "a", 29)[1] == pytest.approx(2)
    ledger.begin("b", Meter(), 0)
    ledger.begin("a", Meter(), 31)


def test_what_runs_counts_before_it_ends_and_is_paid_for_once():
    ledger, meter = Ledger(Quota(tokens_per_minute=60)), Meter()
    ledger.begin("a", meter, 0)
    meter.num_output_tokens = 61
    assert reached(ledger, "a", 0)
    ledger.begin("a", other := Meter(), 3)
    ledger.end("a", other, 3)
    ledger.end("a", meter, 3)
    ledger.begin("a", Meter(), 3)


def test_a_long_answer_within_the_rate_owes_nothing():
    ledger, meter = Ledger(Quota(tokens_per_minute=60)), Meter()
    ledger.begin("a", meter, 0)
    meter.num_output_tokens = 600
    ledger.end("a", meter, 10 * MINUTE)
    ledger.begin("a", Meter(), 10 * MINUTE)


def test_the_error_tells_limit_and_time():
    ledger = Ledger(Quota(answers=1))
    ledger.begin("a", Meter(), 0)
    with pytest.raises(ResourceExhaustedStatus) as raised:
        ledger.begin("a", Meter(), 0)
    assert raised.value.metadata == {"limit": "answers", "most": "1"}
    assert to_status(raised.value).code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert raised.value.retry_after_s


def test_idle_identities_are_forgotten_and_those_in_debt_are_not():
    ledger = Ledger(Quota(tokens_per_minute=60))
    for number in range(1000):
        meter = Meter()
        ledger.begin(f"a{number}", meter, 0)
        meter.num_output_tokens = 30
        ledger.end(f"a{number}", meter, 0)
    assert ledger.num_identities == 1000
    ledger.begin("debtor", debt := Meter(), 0)
    debt.num_output_tokens = 6000
    ledger.end("debtor", debt, 0)
    for number in range(2000):
        ledger.begin(f"b{number}", meter := Meter(), MINUTE)
        ledger.end(f"b{number}", meter, MINUTE)
    assert ledger.num_identities <= 3
    assert reached(ledger, "debtor", MINUTE)


@given(st.lists(st.tuples(st.integers(0, 100), st.floats(0, 100)), max_size=30))
def test_over_any_time_no_more_is_let_through_than_what_was_there_and_came(
    steps: list[tuple[int, float]],
):
    bucket, now, spent = Bucket(60, 0), 0.0, 0
    for amount, pause in steps:
        now += pause
        bucket.spend(0, now)
        if not bucket.debt_s:
            bucket.spend(amount, now)
            spent += amount
            assert spent <= 60 + now + 100


def test_requests_are_paid_for_by_their_bytes_before_they_are_read():
    ledger = Ledger(Quota(request_bytes_per_minute=600))
    ledger.read("a", 100, 0)
    ledger.begin("a", Meter(), 0, 700)
    with pytest.raises(ResourceExhaustedStatus) as raised:
        ledger.read("a", 1, 0)
    assert raised.value.metadata == {"limit": "request_bytes_per_minute", "most": "600"}
    assert raised.value.retry_after_s == pytest.approx(20.1)
    assert reached(ledger, "a", 0)[0] == "request_bytes_per_minute"
    ledger.read("b", 1, 0)
    ledger.read("a", 1, 20.2)


def test_a_request_that_is_refused_costs_nothing():
    ledger = Ledger(Quota(answers=1, request_bytes_per_minute=600))
    ledger.begin("a", Meter(), 0, 1)
    for _ in range(1000):
        with pytest.raises(ResourceExhaustedStatus, match="1 answers"):
            ledger.begin("a", Meter(), 0, 600)
    ledger.read("a", 1, 0)


def test_who_has_sent_much_is_not_forgotten_before_it_is_paid_for():
    ledger = Ledger(Quota(request_bytes_per_minute=60))
    ledger.read("a", 600, 0)
    for _ in range(10):
        ledger.read("b", 0, 1)
    assert reached(ledger, "a", 1)[0] == "request_bytes_per_minute"
