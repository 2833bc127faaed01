"""Who joins and who leaves a pool, whatever DNS says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specmesh.orchestrator.replicas.discovery.entries import Entries, Name
from specmesh.orchestrator.replicas.discovery.membership import (
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


def test_what_a_name_no_longer_resolves_to_is_dropped():
    members = Membership(Entries(("s",), NAMES[:1]))
    assert members.answered(NAMES[0], DnsAnswer(("x", "y")), ()) == MembershipChange(("x", "y"), ())
    assert members.answered(NAMES[0], DnsAnswer(("z", "y")), ("x", "y")) == MembershipChange(
        ("z",), ("x",)
    )
    assert members.addresses == ("s", "y", "z")


def test_empty_answer_drops_only_who_does_not_serve():
    members = Membership(Entries((), NAMES[:1]))
    members.answered(NAMES[0], DnsAnswer(("x", "y")), ())
    assert members.answered(NAMES[0], DnsAnswer(), ("x",)) == MembershipChange((), ("y",))
    assert members.answered(NAMES[0], DnsAnswer(), ()) == MembershipChange((), ("x",))


@given(listed=LISTED, events=EVENTS)
def test_changes_lead_from_one_membership_to_the_next(listed, events):
    members = Membership(Entries(listed, NAMES))
    present = list(members.addresses)
    for name, answer, serving in events:
        change = members.answered(name, answer, serving)
        assert not set(change.added) & set(present)
        assert set(change.dropped) <= set(present)
        present = [each for each in present if each not in change.dropped] + [*change.added]
        assert sorted(present) == sorted(members.addresses)


@given(listed=LISTED, events=EVENTS)
def test_no_hiccup_of_dns_drops_a_replica_that_serves(listed, events):
    members = Membership(Entries(listed, NAMES))
    for name, answer, serving in events:
        change = members.answered(name, answer, serving)
        assert not set(listed) & set(change.dropped)
        if answer.failure:
            assert not change.dropped
        if not answer.addresses:
            assert not serving & set(change.dropped)


@given(listed=LISTED, events=EVENTS, last=st.tuples(ANSWERS, ANSWERS))
def test_once_dns_has_spoken_nothing_is_left_of_what_was(listed, events, last):
    members = Membership(Entries(listed, NAMES))
    for name, answer, serving in events:
        members.answered(name, answer, serving)
    for name, answer in zip(NAMES, last, strict=True):
        members.answered(name, DnsAnswer(answer.addresses), ())
    assert set(members.addresses) == {*listed, *last[0].addresses, *last[1].addresses}
