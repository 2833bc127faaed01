"""Prefix messages name what a replica holds and bring what it lacks."""

from __future__ import annotations

from specmesh.decoding.prefix import PrefixChain
from specmesh.orchestrator.replicas.prefixes.holders import PrefixHolders
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix

TOKENS = list(range(100, 140))


def test_unseen_replica_gets_the_whole_prefix():
    message = CommittedPrefix("s", TOKENS).message("a", 40, (7,))
    assert (message.base_length, message.base_digest) == (0, b"")
    assert message.token_ids == [*TOKENS, 7]
    assert message.session_id == "s"


def test_replica_gets_only_what_follows_the_full_blocks_it_holds():
    prefix = CommittedPrefix("s", TOKENS)
    prefix.seen_by("a", 39)
    message = prefix.message("a", 40, (7, 8))
    assert message.base_length == 32
    assert message.base_digest == PrefixChain(TOKENS).digests[1]
    assert message.token_ids == [*TOKENS[32:], 7, 8]
    assert prefix.message("b", 40, ()).base_length == 0


def test_message_is_built_once_for_replicas_that_hold_the_same():
    prefix = CommittedPrefix("s", TOKENS)
    message = prefix.message("a", 40, (7,))
    assert prefix.message("b", 40, (7,)) is message
    assert prefix.message("b", 40, (8,)).token_ids == [*TOKENS, 8]
    assert prefix.message("b", 39, (8,)).token_ids == [*TOKENS[:39], 8]


def test_replica_that_forgot_gets_the_whole_prefix_again():
    prefix = CommittedPrefix("s", TOKENS)
    prefix.seen_by("a", 40)
    prefix.forgotten_by("a")
    assert prefix.message("a", 40, ()).token_ids == TOKENS


def test_commits_lengthen_the_prefix_but_not_what_a_replica_holds():
    prefix = CommittedPrefix("s", TOKENS)
    prefix.seen_by("a", 40)
    prefix.commit(range(20))
    assert prefix.length == 60
    message = prefix.message("a", 60, ())
    assert message.base_length == 32
    assert message.token_ids == [*TOKENS[32:], *range(20)]


def test_path_follows_the_length_that_was_committed_when_it_was_given():
    prefix = CommittedPrefix("s", TOKENS)
    prefix.commit(range(20))
    prefix.seen_by("a", 60)
    message = prefix.message("a", 40, (7, 8))
    assert message.base_length == 32
    assert message.token_ids == [*TOKENS[32:], 7, 8]
    assert prefix.message("a", 60, ()).base_length == 48


def test_late_answer_does_not_shorten_what_a_replica_holds():
    prefix = CommittedPrefix("s", TOKENS)
    prefix.seen_by("a", 40)
    prefix.seen_by("a", 20)
    assert prefix.message("a", 40, ()).base_length == 32


def turn(tokens: list[int], answer: list[int], holders: PrefixHolders, held: int) -> None:
    """An answer of ``answer`` to ``tokens``, after which the replica a holds ``held`` tokens."""
    prefix = CommittedPrefix("s", tokens, holders)
    prefix.commit(answer)
    prefix.seen_by("a", held)
    prefix.close()


def test_the_next_turn_knows_who_holds_the_turns_before():
    holders = PrefixHolders()
    turn(TOKENS, list(range(20)), holders, held=59)
    prefix = CommittedPrefix("t", [*TOKENS, *range(20), 7, 8], holders)
    assert prefix.holds == {"a": 48}
    assert prefix.message("a", 62, ()).base_length == 48
    assert CommittedPrefix("t", TOKENS, holders).holds == {"a": 32}
    assert CommittedPrefix("t", [1, *TOKENS], holders).holds == {}


def test_who_was_caught_forgetting_a_prefix_is_not_believed_to_hold_it_or_a_part_of_it():
    holders = PrefixHolders()
    turn(TOKENS, [], holders, held=40)
    CommittedPrefix("t", [*TOKENS, 1], holders).forgotten_by("a")
    assert CommittedPrefix("u", TOKENS, holders).holds == {}
    assert CommittedPrefix("u", TOKENS[:16], holders).holds == {}


def test_who_was_caught_forgetting_one_prefix_is_believed_to_hold_all_others():
    holders = PrefixHolders()
    prompts = [[first, *TOKENS] for first in range(1000)]
    for prompt in prompts:
        turn(prompt, [], holders, held=41)
    CommittedPrefix("t", prompts[0], holders).forgotten_by("a")
    held = [CommittedPrefix("t", prompt, holders).holds for prompt in prompts]
    assert held == [{}, *[{"a": 32}] * 999]


def test_who_is_gone_holds_nothing():
    holders = PrefixHolders()
    for prompt in ([1, *TOKENS], [2, *TOKENS]):
        prefix = CommittedPrefix("s", prompt, holders)
        for replica in ("a", "b")[: prompt[0]]:
            prefix.seen_by(replica, 41)
        prefix.close()
    holders.keep({"b", "c"})
    held = [CommittedPrefix("t", [first, *TOKENS], holders).holds for first in (1, 2)]
    assert held == [{}, {"b": 32}]


def test_of_many_prefixes_those_not_used_for_longest_are_dropped():
    holders = PrefixHolders(max_prefixes=2)
    prompts = [[first, *TOKENS] for first in range(3)]
    for prompt in prompts:
        turn(prompt, [], holders, held=41)
    assert [CommittedPrefix("t", p, holders).holds for p in prompts] == [{}, {"a": 32}, {"a": 32}]
