"""Who joins and who leaves a pool, whatever DNS says."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from specmesh.orchestrator.replicas.discovery.entries import Entries, Name
from specmesh.orchestrator.replicas.discovery.membership import (
    DROPPED_AFTER,
    DnsAnswer,
    Membership,
    MembershipChange,
)

NAMES = (Name("a.test", 1), Name("b.test", 1))
ADDRESSES = st.sampled_from("uvwxyz")
ANSWERS = st.builds(
    DnsAnswer, st.lists(ADDRESSES, max_size=4).map(tuple), st.sampled_from(("", "", "SERVFAIL"))
)
EVENTS = st.lists(st.tuples(st.sampled_from(NAMES), ANSWERS, st.frozensets(ADDRESSES)), max_size=12)
LISTED = st.lists(ADDRESSES, unique=True, max_size=2).map(tuple)


def change(
    members: Membership, name: Name, answer: DnsAnswer, serving: Collection[str]
) -> MembershipChange:
    """The change that an answer makes to a pool that had all addresses."""
    before = members.addresses
    members.answered(name, answer, serving)
    return members.change_from(before)


def test_what_a_name_no_longer_resolves_to_is_dropped():
    members = Membership(Entries(("s",), NAMES[:1]))
    assert change(members, NAMES[0], DnsAnswer(("x", "y")), ()) == MembershipChange(("x", "y"), ())
    assert change(members, NAMES[0], DnsAnswer(("z", "y")), ("x", "y")) == MembershipChange(
        ("z",), ("x",)
    )
    assert members.addresses == ("s", "y", "z")


def test_empty_answer_drops_only_who_does_not_serve():
    members = Membership(Entries((), NAMES[:1]))
    members.answered(NAMES[0], DnsAnswer(("x", "y")), ())
    assert change(members, NAMES[0], DnsAnswer(), ("x",)) == MembershipChange((), ("y",))
    assert change(members, NAMES[0], DnsAnswer(), ()) == MembershipChange((), ("x",))


def test_incomplete_answers_in_a_row_drop_who_they_lack_and_does_not_serve():
    members = Membership(Entries((), NAMES[:1]))
    members.answered(NAMES[0], DnsAnswer(("x", "y", "z")), ())
    incomplete = NAMES[0], DnsAnswer(("z",), "SERVFAIL")
    for _ in range(DROPPED_AFTER - 1):
        assert change(members, *incomplete, serving="x") == MembershipChange()
    assert change(members, NAMES[0], DnsAnswer(failure="SERVFAIL"), "x") == MembershipChange()
    assert change(members, *incomplete, serving="x") == MembershipChange((), ("y",))
    for _ in range(DROPPED_AFTER - 1):  # from when it has last served
        assert change(members, *incomplete, serving="") == MembershipChange()
    assert change(members, *incomplete, serving="") == MembershipChange((), ("x",))


def test_answer_that_has_an_address_ends_the_row_of_those_that_lack_it():
    members = Membership(Entries((), NAMES[:1]))
    members.answered(NAMES[0], DnsAnswer(("x", "y")), ())
    row = [DnsAnswer(("y",), "SERVFAIL")] * (DROPPED_AFTER - 1)
    for answer in (*row, DnsAnswer(("x", "y")), *row, DnsAnswer(("x",), "SERVFAIL"), *row):
        members.answered(NAMES[0], answer, ())
        assert members.addresses == ("x", "y")


def test_name_server_that_always_fails_for_one_family_does_not_have_all_stay_that_ever_were():
    members = Membership(Entries((), NAMES[:1]))
    for number in range(1000):
        members.answered(NAMES[0], DnsAnswer((str(number),), "SERVFAIL"), (str(number),))
    assert len(members.addresses) == DROPPED_AFTER


@given(listed=LISTED, events=EVENTS, present=st.lists(ADDRESSES, unique=True))
def test_a_change_makes_any_pool_have_the_addresses(listed, events, present):
    """Also one that has missed earlier changes."""
    members = Membership(Entries(listed, NAMES))
    for name, answer, serving in events:
        members.answered(name, answer, serving)
        needed = members.change_from(present)
        assert not set(needed.added) & set(present)
        assert set(needed.dropped) <= set(present)
        present = [each for each in present if each not in needed.dropped] + [*needed.added]
        assert sorted(present) == sorted(members.addresses)


@given(listed=LISTED, events=EVENTS)
def test_no_hiccup_of_dns_drops_a_replica_that_serves(listed, events):
    members = Membership(Entries(listed, NAMES))
    for name, answer, serving in events:
        dropped = set(change(members, name, answer, serving).dropped)
        assert not set(listed) & dropped
        if answer.failure or not answer.addresses:
            assert not serving & dropped
        if answer.failure and not answer.addresses:
            assert not dropped


@given(listed=LISTED, events=EVENTS, last=st.tuples(ANSWERS, ANSWERS))
def test_once_dns_has_spoken_nothing_is_left_of_what_was(listed, events, last):
    members = Membership(Entries(listed, NAMES))
    for name, answer, serving in events:
        members.answered(name, answer, serving)
    for name, answer in zip(NAMES, last, strict=True):
        members.answered(name, DnsAnswer(answer.addresses), ())
    assert set(members.addresses) == {*listed, *last[0].addresses, *last[1].addresses}
