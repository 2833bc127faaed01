"""A short run of ``specmesh bench prefixes``, and its figures."""

from __future__ import annotations

import json

from specmesh.bench.prefixes.chats import ChatTurn
from specmesh.bench.prefixes.measure import FirstTokenLatency, Side


def test_first_turns_do_not_count_as_missed():
    turns = [ChatTurn(0, 9.0, 100, 0), ChatTurn(1, 1.0, 200, 160), ChatTurn(2, 3.0, 300, 240)]
    side = Side(turns, computed_tokens=150)
    assert side.hit_rate == 400 / 500
    assert side.computed_per_answer == 50
    assert FirstTokenLatency.of(side.later) == FirstTokenLatency(1000, 3000)


def test_a_single_turn_is_its_own_percentile():
    """As the first turns of one chat are."""
    assert FirstTokenLatency.of([ChatTurn(0, 0.25, 100, 0)]) == FirstTokenLatency(250, 250)


def test_both_sides_answer_all_that_they_are_asked(bench, no_process_left):
    small = "--rounds 1 --chats 2 --users 2 --turns 2 --think 0.01 --answer-tokens 4"
    mesh = "--verifiers 1 --orchestrators 1 --target-ms 2 --drafter-ms 1 --first-tokens 100"
    done = bench("prefixes", *small.split(), *mesh.split(), "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    for side in found["sides"].values():
        assert side["answers"] == 4
        assert side["hit_rate"] > 0.5  # there is nobody else to ask
        assert side["computed_tokens_per_answer"] > 0
    # First turns are asked for; who holds the later ones is known, but for their last words.
    assert found["sides"]["without"]["searches"] == {}
    assert sum(found["sides"]["with"]["searches"].values()) == 4
