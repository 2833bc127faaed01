"""What became of each token, from what the orchestrator writes on spans."""

from dataclasses import replace

from opentelemetry.sdk.trace import TracerProvider
from tests.client.spans import committed_round, draft, generate, verification

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.trees.tree import TokenTree as DraftTree
from specmesh.orchestrator.replicas.calls.traced_tokens import TracedTokens
from specmesh.orchestrator.strategies.commands import Commit
from specmesh.serving import conventions as names
from specmesh.traces.analysis.token_numbers import numbered_apart
from specmesh.traces.analysis.token_tree import Fate, token_tree
from specmesh.traces.spans import AttributeValue

PROMPT = 10
"""Tokens before the answer."""


def with_attributes(span, attributes):
    told: dict[str, AttributeValue] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in attributes.items()
    }
    return replace(span, attributes={**span.attributes, **told})


def chain(*token_ids):
    return DraftTree.chain(token_ids)


def an_answer(text=None):
    """Two rounds; tokens are thousands. Of the draft 1 2 3 the target accepts 1 2 and says 9
    instead of 3, while 4 5 was being drafted after 3. Then 6 is accepted whole, with 7 as the
    bonus, and 8 is left over."""
    tokens = TracedTokens(PROMPT, text)
    first = draft((0, 10), 3)[0]
    wrong = draft((11, 20), 2, n=2)[0]
    verdict = Verdict((1, 2), 9000, recovered=True)
    judged = verification((11, 30), 3, 2)[0]
    right = draft((31, 40), 1, n=3)[0]
    agreed = Verdict((1,), 7000, recovered=False)
    judged2 = verification((41, 60), 1, 1, n=2)[0]
    left = draft((61, 70), 1, n=4)[0]
    spans = [
        with_attributes(first, tokens.drafted(PROMPT, (), chain(1000, 2000, 3000), 0)),
        with_attributes(wrong, tokens.drafted(PROMPT, (1000, 2000, 3000), chain(4000, 5000), 0)),
        with_attributes(judged, tokens.judged(PROMPT, (), chain(1000, 2000, 3000), verdict)),
    ]
    spans.append(
        with_attributes(
            committed_round(0, 30, 3),
            tokens.committed(Commit((1000, 2000, 9000), 2, recovered=True)),
        )
    )
    spans += [
        with_attributes(right, tokens.drafted(PROMPT + 3, (), chain(6000), 0)),
        with_attributes(judged2, tokens.judged(PROMPT + 3, (), chain(6000), agreed)),
        with_attributes(committed_round(31, 60, 2, n=2), tokens.committed(Commit((6000, 7000), 1))),
        with_attributes(left, tokens.drafted(PROMPT + 5, (), chain(8000), 0)),
    ]
    return spans


def fates(tokens):
    return [token.fate for token in tokens]


def test_every_token_has_its_fate():
    tree = token_tree(an_answer())
    assert fates(tree.committed) == [
        *(Fate.ACCEPTED, Fate.ACCEPTED, Fate.RECOVERED),
        *(Fate.ACCEPTED, Fate.BONUS),
    ]
    (branch,) = tree.branches(tree.committed[1].number)
    assert fates(branch) == [Fate.REJECTED, Fate.CANCELLED, Fate.CANCELLED]
    (rest,) = tree.branches(tree.committed[-1].number)
    assert fates(rest) == [Fate.UNUSED]
    counts = tree.counts()
    assert (counts["drafted"], counts["wasted"], counts["committed"]) == (7, 4, 5)


def test_without_permission_there_is_no_text_and_no_token_id():
    spans = an_answer()
    assert {token.text for token in token_tree(spans).committed} == {None}
    written = [value for span in spans for value in span.attributes.values()]
    listed = [n for value in written if isinstance(value, tuple) for n in value]
    assert max(n for n in listed if isinstance(n, int)) < 1000


def test_with_it_every_token_has_its_text():
    spans = an_answer(lambda token: f"<{token // 1000}>".encode())
    tree = token_tree(spans)
    assert [token.text for token in tree.committed] == ["<1>", "<2>", "<9>", "<6>", "<7>"]
    (branch,) = tree.branches(tree.committed[1].number)
    assert [token.text for token in branch] == ["<3>", "<4>", "<5>"]


def test_the_order_in_which_spans_come_does_not_matter():
    spans = an_answer()
    assert token_tree(spans[::-1]) == token_tree(spans)


def test_trees_with_forks_are_told_as_chains():
    tokens = TracedTokens(PROMPT, None)
    forked = DraftTree((1, 2, 3, 4), (0, 1, 1, 0))
    span = with_attributes(draft((0, 10), 2)[0], tokens.drafted(PROMPT, (), forked, 0))
    end = with_attributes(committed_round(0, 20, 1), tokens.committed(Commit((9,), 0)))
    tree = token_tree([span, end])
    assert sorted(len(chain) for chain in tree.branches(0)) == [1, 1, 2]


def test_nothing_is_numbered_where_nothing_is_recorded():
    assert TracedTokens.if_recorded(0, None) is None
    with TracerProvider().get_tracer("test").start_as_current_span("request"):
        assert TracedTokens.if_recorded(0, None) is not None


def test_numbers_in_a_cycle_are_left_out():
    cycle = {names.TREE_NODES: (1, 2), names.TREE_PARENTS: (2, 1)}
    span = with_attributes(draft((0, 10), 2)[0], cycle)
    end = {names.COMMITTED_NODES: (9,), names.COMMITTED_KINDS: ("bonus",)}
    tree = token_tree([span, with_attributes(committed_round(0, 20, 1), end)])
    assert tree.counts()["wasted"] == 1
    assert tree.branches(0) == []


def test_a_token_of_an_unknown_kind_is_left_out():
    end = {names.COMMITTED_NODES: (1, 2, 3), names.COMMITTED_KINDS: ("accepted", "odd", "rejected")}
    tree = token_tree([with_attributes(committed_round(0, 20, 3), end)])
    assert fates(tree.committed) == [Fate.ACCEPTED]


def test_traces_of_other_programs_have_no_tree():
    assert token_tree(verification((0, 10), 1, 1)) is None


def test_tokens_of_several_streams_are_not_mixed_up():
    one = [replace(each, parent_span_id="g") for each in an_answer()]
    other = [replace(each, span_id=f"2{each.span_id}", parent_span_id="2g") for each in one]
    roots = [generate(0, 60), replace(generate(1, 61), span_id="2g")]
    alone = token_tree(one)
    both = token_tree(numbered_apart([*roots, *one, *other]))
    assert both.counts() == {fate: 2 * count for fate, count in alone.counts().items()}
    assert fates(both.committed) == 2 * fates(alone.committed)
    assert len({token.number for token in both.committed}) == len(both.committed)
