"""One verification: where the walk ends, and what is refused."""

import math

import numpy as np
import pytest

from specmesh.decoding.acceptance import Verdict, verify
from specmesh.decoding.drafting import draw_children
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.predict.closed_forms import acceptance_rate
from specmesh.decoding.sampling import AcceptanceMode, Distribution, Sampling, choose
from specmesh.decoding.trees.tree import EMPTY, TokenTree

GREEDY = Sampling(temperature=0)
REJECTION = Sampling(seed=11, mode=AcceptanceMode.REJECTION)


def saying(*tokens, vocab_size=5):
    """Logits whose row k puts (nearly) everything on ``tokens[k]``."""
    rows = np.full((len(tokens), vocab_size), -50, dtype=np.float32)
    rows[np.arange(len(tokens)), tokens] = 50
    return rows


def distribution(**probabilities):
    """``distribution(t1=0.5, t3=0.5)``"""
    token_ids = np.array([int(name[1:]) for name in probabilities])
    return Distribution(token_ids, np.array(list(probabilities.values())))


def certain(tree):
    """Distributions that hold the children of each node alone, in equal parts."""
    return {
        node: Distribution(
            np.array(tree.tokens_on(tree.children(node))),
            np.full(len(tree.children(node)), 1 / len(tree.children(node))),
        )
        for node in range(len(tree) + 1)
        if tree.children(node)
    }


def verdict(tree, logits, sampling):
    return verify(tree, logits, sampling, 10, certain(tree))


@pytest.fixture(params=[GREEDY, Sampling(seed=11), REJECTION], ids=lambda s: s.mode.name)
def sampling(request):
    return request.param


def test_empty_tree_gives_the_targets_own_token(sampling):
    assert verdict(EMPTY, saying(3), sampling) == Verdict((), 3, recovered=False)


def test_accepted_chain_earns_a_bonus_token(sampling):
    chain = TokenTree.chain([1, 2])
    assert verdict(chain, saying(1, 2, 3), sampling) == Verdict((1, 2), 3, recovered=False)


def test_first_rejection_ends_the_walk_with_a_recovered_token(sampling):
    chain = TokenTree.chain([1, 2, 3])
    assert verdict(chain, saying(1, 4, 3, 0), sampling) == Verdict((1,), 4, recovered=True)


def test_walk_goes_down_the_branch_the_target_takes(sampling):
    tree = TokenTree((1, 2, 3, 4), (0, 0, 2, 2))
    logits = saying(2, 0, 4, 0, 1)
    assert verdict(tree, logits, sampling) == Verdict((2, 4), 1, recovered=False)


def test_choice_depends_on_the_position_of_each_node():
    rows = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    sampling = Sampling(seed=1)
    tokens = [choose(row, sampling, 100 + i) for i, row in enumerate(rows)]
    found = verify(TokenTree.chain(tokens[:3]), rows, sampling, 100)
    assert found == Verdict((1, 2, 3), tokens[3], recovered=False)


def test_bonus_token_is_what_a_verification_from_there_would_give(sampling):
    chain = TokenTree.chain([1, 2])
    for position in range(20):
        logits = saying(1, 2, 0, vocab_size=64)
        logits[2] = 0  # any token, by the noise alone
        whole = verify(chain, logits, sampling, position, certain(chain))
        rest = verify(EMPTY, logits[2:], sampling, position + 2)
        assert whole == Verdict((1, 2), rest.next_token, recovered=False)


def test_rejected_token_is_replaced_from_residual():
    # Target (0.6, 0.4, 0), drafter (0.2, 0.3, 0.5): all the residual but 0.1 lies on token 0.
    target = np.log(np.array([[0.6, 0.4, 1e-30]] * 2, dtype=np.float32))
    draft = {0: distribution(t0=0.2, t1=0.3, t2=0.5)}
    recovered = [
        verify(TokenTree.chain([2]), target, REJECTION, position, draft)
        for position in range(5_000)
    ]
    assert all(v.accepted_nodes == () and v.recovered for v in recovered)
    share = np.mean([v.next_token for v in recovered])
    # norm(max(0, p - q)) = (0.8, 0.2, 0); 5 standard errors.
    assert abs(share - 0.2) < 5 * 0.4 / math.sqrt(5_000)


def test_second_child_is_judged_by_the_residual_of_the_first():
    # p = (0.5, 0.5), q = (0.75, 0.25). Token 0 first: it stands with 2/3; else p is all on
    # token 1 and q too, so token 1 stands for certain and there is nothing to recover.
    target = np.log(np.array([[0.5, 0.5]] * 3, dtype=np.float32))
    draft = {0: distribution(t0=0.75, t1=0.25)}
    tree = TokenTree((0, 1), (0, 0))
    accepted = [verify(tree, target, REJECTION, at, draft).accepted_nodes for at in range(5_000)]
    assert set(accepted) == {(1,), (2,)}
    assert abs(accepted.count((1,)) / 5_000 - 2 / 3) < 5 * 0.5 / math.sqrt(5_000)


def test_a_drafter_equal_to_the_target_is_always_accepted():
    rows = np.random.default_rng(4).normal(size=(2, 32)).astype(np.float32)
    for position in range(500):
        drawn = draw_children(rows[0], REJECTION, position, 1)
        tree, drawn_from = TokenTree.chain(drawn.children), {0: drawn.distribution}
        found = verify(tree, rows, REJECTION, position, drawn_from)
        assert found.accepted_nodes == (1,)


def test_a_draft_is_accepted_at_the_rate_of_the_closed_form():
    target_probs, draft_probs = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    target = np.log(np.array([target_probs] * 2)).astype(np.float32)
    draft_logits = np.log(draft_probs).astype(np.float32)
    accepted = 0
    for position in range(5_000):
        drawn = draw_children(draft_logits, REJECTION, position, 1)
        tree, drawn_from = TokenTree.chain(drawn.children), {0: drawn.distribution}
        found = verify(tree, target, REJECTION, position, drawn_from)
        accepted += len(found.accepted_nodes)
    expected = acceptance_rate(target_probs, draft_probs)
    assert abs(accepted / 5_000 - expected) < 5 * 0.5 / math.sqrt(5_000)


@pytest.mark.parametrize(
    "draft",
    [
        pytest.param({}, id="none"),
        pytest.param({0: distribution(t1=1.0)}, id="none for an inner node"),
        pytest.param({0: distribution(t2=1.0), 1: distribution(t2=1.0)}, id="not listed"),
        pytest.param({0: distribution(t1=0.0, t2=1.0), 1: distribution(t2=1.0)}, id="at zero"),
        pytest.param({0: distribution(t1=1.0), 1: distribution(t2=0.5, t5=0.5)}, id="outside"),
    ],
)
def test_draft_that_could_not_have_been_drawn_is_refused_whatever_the_noise(draft):
    chain = TokenTree.chain([1, 2])
    for position in range(50):
        with pytest.raises(InvalidField) as refusal:
            verify(chain, saying(4, 4, 4), REJECTION, position, draft)
        assert refusal.value.field == "tree.draft_distributions"


def test_logits_must_fit_the_tree():
    with pytest.raises(ValueError, match="rows of logits"):
        verify(TokenTree.chain([1]), saying(1), GREEDY, 0)
