"""The choice of tokens from all logits of a forward pass at once."""

import numpy as np
import pytest
import torch
from tests.decoding.test_race import logits_of

from specmesh.decoding.acceptance import verify
from specmesh.decoding.compiled import choice as compiled
from specmesh.decoding.own_tokens import OwnTokens
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.engine.choice import find_own
from specmesh.inference.model import ForwardRequest
from specmesh.inference.team import team_for

SETTINGS = [
    {"temperature": 0.0},
    {"temperature": 0.8},
    {"temperature": 1.5, "top_p": 0.9},
]
TREE = TokenTree((3, 4, 5), (0, 0, 1))


@pytest.fixture(autouse=True, scope="module")
def prepared():
    compiled.prepare(team_for)


@pytest.fixture(autouse=True)
def threads():
    """Sets the number of threads of a forward pass."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield torch.set_num_threads
    torch.set_num_threads(before)


def rows(count, seed=0, size=20_000):
    return np.array([logits_of("normal", size, seed + each) for each in range(count)])


def request(tree, settings, position=7):
    sampling = Sampling(**settings, seed=9)
    return ForwardRequest(None, tree, OwnTokens.of(sampling, position)), sampling


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_verification_says_the_same_with_what_was_found(settings):
    """Each draft is what the target says: a chain that is accepted wholly."""
    logits = rows(4)
    tree, sampling = EMPTY, request(EMPTY, settings)[1]
    for _ in range(3):
        tree = TokenTree.chain(
            [*tree.token_ids, verify(tree, logits[: len(tree) + 1], sampling, 7).next_token]
        )
    alone = verify(tree, logits, sampling, 7)
    chain, _ = request(tree, settings)
    find_own([chain], [logits])
    assert list(chain.own.found) == [0, 1, 2, 3]
    assert verify(tree, logits, sampling, 7, own=chain.own) == alone
    assert len(alone.accepted_nodes) == 3


def test_of_a_tree_only_the_root_is_looked_at_and_of_a_chain_what_is_new():
    settings = {"temperature": 0.8}
    tree, chain, empty = (
        request(each, settings)[0] for each in (TREE, TokenTree.chain([1, 2, 3]), EMPTY)
    )
    find_own([tree, chain, empty], [rows(4), rows(1, 10), rows(1, 20)])
    assert [list(each.own.found) for each in (tree, chain, empty)] == [[0], [3], [0]]
    alone = OwnTokens.of(Sampling(0.8, seed=9), 7)
    assert chain.own.found[3] == verify(EMPTY, rows(1, 10), Sampling(0.8, seed=9), 10).next_token
    assert (
        empty.own.found[0]
        == verify(EMPTY, rows(1, 20), Sampling(0.8, seed=9), 7, own=alone).next_token
    )


@pytest.mark.parametrize(
    "results",
    [
        [rows(1), None],
        [rows(1), np.empty((0, 20_000), np.float32)],
        [rows(1), rows(1).astype(np.float64)],
        [rows(1), rows(1)[:, ::2]],
    ],
    ids=["waits", "no rows", "other type", "other layout"],
)
def test_one_row_alone_is_left_to_its_verification(results):
    requests = [request(EMPTY, {"temperature": 0.8})[0] for _ in results]
    find_own(requests, results)
    assert [each.own.found for each in requests] == [{}, {}]


def test_nothing_is_found_for_requests_that_want_nothing():
    wanted = [request(EMPTY, {"temperature": 0.8})[0] for _ in range(2)]
    other, _ = request(EMPTY, {"mode": AcceptanceMode.REJECTION})
    find_own([wanted[0], other, wanted[1]], [rows(1, each) for each in range(3)])
    assert other.own is None
    assert [list(each.own.found) for each in wanted] == [[0], [0]]


def test_a_row_that_is_broken_is_left_to_its_verification():
    logits = [rows(1, each) for each in range(3)]
    logits[1][0, 17] = np.nan
    requests = [request(EMPTY, {"temperature": 0.0})[0] for _ in logits]
    find_own(requests, logits)
    assert [list(each.own.found) for each in requests] == [[0], [], [0]]
    with pytest.raises(FloatingPointError):
        verify(EMPTY, logits[1], Sampling(0.0), 7, own=requests[1].own)


def test_the_likeliest_of_a_small_vocabulary_is_left_to_its_verification():
    requests = [request(EMPTY, {"temperature": temperature})[0] for temperature in (0.0, 0.8, 0.8)]
    find_own(requests, [rows(1, each, size=4_096) for each in range(3)])
    assert [list(each.own.found) for each in requests] == [[], [0], [0]]


@pytest.mark.parametrize("number", [1, 3])
def test_the_threads_are_those_of_a_forward_and_one_leaves_all_to_the_verifications(
    number, threads
):
    threads(number)
    assert compiled.num_threads() == number
    requests = [request(EMPTY, {"temperature": 0.8})[0] for _ in range(2)]
    find_own(requests, [rows(1, each) for each in range(2)])
    assert [list(each.own.found) for each in requests] == ([[], []] if number == 1 else [[0], [0]])
