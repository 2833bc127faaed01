"""A queue that no identity can take for itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specmesh.orchestrator.admission.fair_queue import FairQueue

IDENTITIES = "abc"


def queue_of(text: str, running: str = "") -> FairQueue[int]:
    queue: FairQueue[int] = FairQueue()
    for identity in running:
        queue.begun(identity)
    for number, identity in enumerate(text):
        queue.append(identity, number)
    return queue


def drained(queue: FairQueue[int]) -> list[tuple[str, int]]:
    """All items in the order in which they begin, none of which ends."""
    found = []
    while queue:
        identity, item = queue.pop()
        queue.begun(identity)
        found.append((identity, item))
    return found


def test_identities_take_turns_and_each_keeps_its_order():
    assert drained(queue_of("aaabbc")) == [
        *[("a", 0), ("b", 3), ("c", 5)],
        *[("a", 1), ("b", 4), ("a", 2)],
    ]


def test_who_has_more_running_comes_later():
    assert [identity for identity, _ in drained(queue_of("aabb", running="aa"))] == list("bbaa")


def test_the_last_of_the_longest_makes_room():
    queue = queue_of("abbab")
    assert queue.is_crowded_by_others("c")
    assert queue.pop_longest() == 4
    assert len(queue) == 4
    assert not queue.is_crowded_by_others("a")
    assert queue.is_crowded_by_others("c")


def test_an_empty_queue_is_crowded_by_nobody():
    assert not queue_of("").is_crowded_by_others("a")


@given(
    waiting=st.text(IDENTITIES, max_size=12),
    running=st.text(IDENTITIES, max_size=6),
    identity=st.sampled_from(IDENTITIES),
)
def test_the_number_before_a_newcomer_is_that_of_items_that_begin_before_it(
    waiting: str, running: str, identity: str
):
    expected = queue_of(waiting, running).num_before(identity)
    queue = queue_of(waiting, running)
    queue.append(identity, 999)
    before = [item for _, item in drained(queue)].index(999)
    assert expected - len(IDENTITIES) < before <= expected  # ties are by turns
