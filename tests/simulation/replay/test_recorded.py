"""What is read from the trace of an answer: two rounds of speculation with two draft tokens."""

from dataclasses import replace

import pytest
from tests.client.spans import call, generate, round_

from specmesh.orchestrator.strategies.options import StrategyOptions
from specmesh.simulation.replay.costs import target_law
from specmesh.simulation.replay.recorded import Forward, NotReplayable, RecordedGuess, recorded
from specmesh.simulation.replay.what_if import what_if
from specmesh.traces.spans import Node
from specmesh.traces.trace import Trace

VERIFIER = Node("specmesh-verifier", "v")
DRAFTER = Node("specmesh-drafter", "d")
ANSWER = {
    "specmesh.strategy": "speculative",
    "specmesh.lookahead": 2,
    "specmesh.verifiers": 3,
}


def told(span, **attributes):
    return replace(
        span, attributes=span.attributes | {f"specmesh.{k}": v for k, v in attributes.items()}
    )


def speculated(n, start, nodes, parents, committed):
    """A round of 57 ms: 2 levels of draft in 12 ms, a verification of 40 ms, hops of 1 ms."""
    drafted, drafter = call("draft", DRAFTER, (start, start + 14), (start + 1, start + 13), n)
    tree = {"tree.nodes": nodes, "tree.parents": parents}
    at = start + 15
    judged, verifier = call(
        "verify", VERIFIER, (at, at + 42), (at + 1, at + 41), n, forward_ms=38.0, queue_ms=0.0
    )
    return [
        told(round_(start, start + 57, n), **{"committed.nodes": committed}),
        told(drafted, **tree),
        drafter,
        told(judged, **tree),
        verifier,
    ]


def spans():
    """Of the draft 1 2 the target accepts 1 and says 3; of 4 5 it accepts both and says 6."""
    root = generate(0, 124)
    root = replace(root, parent_span_id="", attributes=root.attributes | ANSWER)
    first = speculated(1, 4, (1, 2), (0, 1), (1, 3))
    return [root, *first, *speculated(2, 61, (4, 5), (3, 4), (4, 5, 6))]


def test_guesses_latencies_and_what_was_asked_are_read():
    found = recorded(Trace.of(spans()))
    assert (found.strategy, found.options) == ("speculative", StrategyOptions(lookahead=2))
    assert (found.num_tokens, found.num_verifiers) == (5, 3)
    right, wrong = RecordedGuess(first=True, other=False), RecordedGuess(first=False, other=False)
    assert found.guesses == {0: right, 1: wrong, 2: right, 3: right}
    assert found.verifications == (Forward(3, 0.04, first=True), Forward(3, 0.04, first=False))
    assert found.drafter_level_s == (0.006, 0.006)
    assert found.hop_s == pytest.approx(0.001)
    assert found.speculation_s == pytest.approx(0.114)
    assert found.duration_s == pytest.approx(0.124)


def test_the_simulation_of_what_is_read_takes_as_long():
    found = what_if(recorded(Trace.of(spans())))
    # Apart from the steps of the orchestrator, 1 ms between the draft and the verification.
    assert found.error == pytest.approx(0, abs=0.03)
    gains = {each.change.name: each.gain for each in found.predictions}
    assert gains["a target 2 times as fast"] == pytest.approx(0.3, abs=0.05)
    assert gains["a drafter 2 times as fast"] == pytest.approx(0.09, abs=0.03)
    assert gains["2 more verifiers"] == 0


def test_time_in_the_queue_counts_unless_the_answer_itself_was_before_it():
    given = spans()
    verifier = given[5]
    others = told(verifier, queue_ms=30.0)
    assert recorded(Trace.of([*given[:5], others, *given[6:]])).verifications[0].seconds == 0.04
    before = replace(verifier, span_id="b", end_ns=verifier.start_ns + 25_000_000)
    found = recorded(Trace.of([*given[:5], others, before, *given[6:]]))
    assert 0.015 in [pytest.approx(each.seconds) for each in found.verifications]


@pytest.mark.parametrize(
    ("attribute", "why"),
    [
        ("strategy", "the whole answer"),
        ("committed.nodes", "no tokens"),
    ],
)
def test_a_trace_that_does_not_tell_enough_is_refused(attribute, why):
    given = [
        replace(each, attributes={k: v for k, v in each.attributes.items() if attribute not in k})
        for each in spans()
    ]
    with pytest.raises(NotReplayable, match=why):
        recorded(Trace.of(given))


def test_a_trace_without_all_its_spans_is_refused():
    with pytest.raises(NotReplayable, match="missing"):
        recorded(Trace.of([each for each in spans() if each.span_id != "r1"]))


@pytest.mark.parametrize(
    ("strategy", "why"), [("filter", "can.t be simulated"), ("heads-and-drafter", "merges drafts")]
)
def test_a_strategy_whose_text_or_whose_guesses_are_not_known_is_refused(strategy, why):
    root, *others = spans()
    with pytest.raises(NotReplayable, match=f"'{strategy}' {why}"):
        recorded(Trace.of([told(root, strategy=strategy), *others]))


def verified(n, start, nodes, parents, committed, heads_ms):
    """A round of 44 ms: a verification of 42 ms with hops of 1 ms, ``heads_ms`` of it heads'."""
    judged, verifier = call(
        "verify", VERIFIER, (start, start + 44), (start + 1, start + 43), n, forward_ms=40.0
    )
    tree = {"tree.nodes": nodes, "tree.parents": parents}
    return [
        told(round_(start, start + 44, n), **{"committed.nodes": committed}),
        told(judged, **tree, heads_ms=heads_ms),
        verifier,
    ]


def spans_of_heads():
    """Nothing is checked at first. Then heads draft 2 3, of which the target accepts 2 and says 4,
    and below that 5, or 6 which is right, and 7."""
    root = generate(0, 140)
    root = replace(root, parent_span_id="", attributes=root.attributes | ANSWER)
    return [
        told(root, strategy="heads"),
        *verified(1, 4, (), (), (1,), 2.0),
        *verified(2, 48, (2, 3), (1, 2), (2, 4), 2.0),
        *verified(3, 92, (5, 6, 7), (4, 4, 6), (6, 7, 8), 0.0),
    ]


def test_what_heads_guessed_is_what_was_verified():
    found = recorded(Trace.of(spans_of_heads()))
    right, wrong = RecordedGuess(first=True, other=False), RecordedGuess(first=False, other=False)
    assert found.guesses == {
        1: right,
        2: wrong,
        3: RecordedGuess(first=False, other=True),
        4: right,
    }
    assert (found.heads_level_s, found.heads_depth) == ((0.001, 0.001), 2)
    assert [each.seconds for each in found.verifications] == pytest.approx([0.04, 0.04, 0.042])
    assert found.drafter_level_s == ()


def test_a_trace_whose_times_contradict_each_other_is_refused():
    given = [
        told(each, heads_ms=1e9) if each.name == "specmesh.verify" else each
        for each in spans_of_heads()
    ]
    with pytest.raises(NotReplayable, match="how long a forward took"):
        recorded(Trace.of(given))


def test_a_verification_whose_times_contradict_each_other_is_left_out():
    given = spans_of_heads()
    found = recorded(Trace.of([*given[:2], told(given[2], heads_ms=1e9), *given[3:]]))
    assert len(found.verifications) == 2
    assert what_if(found).simulated_s > 0
    waited = [told(each, queue_ms=1e8) if "Verify" in each.name else each for each in given]
    assert min(each.seconds for each in recorded(Trace.of(waited)).verifications) > 0


def test_no_forward_of_a_trace_is_so_small_that_it_takes_no_time():
    steep = [Forward(n, ms / 1e3, first=False) for n, ms in ((1, 10), (9, 90), (9, 5))]
    assert min(target_law(steep).at_knots) > 0


def test_an_answer_whose_heads_drafted_for_a_time_that_is_not_known_is_refused():
    given = [
        replace(each, attributes={k: v for k, v in each.attributes.items() if "heads_ms" not in k})
        for each in spans_of_heads()
    ]
    with pytest.raises(NotReplayable, match="how long a level took"):
        recorded(Trace.of(given))


def test_drafts_that_were_all_cancelled_were_half_through_a_level():
    given = [told(each, cancelled=True) if "draft" in each.name else each for each in spans()]
    assert recorded(Trace.of(given)).drafter_level_s == pytest.approx((0.012 / 2.5, 0.012 / 2.5))
    one = [given[0], *(told(each, cancelled=False) for each in given[1:3]), *given[3:]]
    assert recorded(Trace.of(one)).drafter_level_s == (0.006,)


def test_what_was_never_drafted_is_simulated_as_the_target_alone():
    for given in (spans(), spans_of_heads()):
        alone = [
            replace(each, attributes={k: v for k, v in each.attributes.items() if "tree" not in k})
            for each in given
            if "draft" not in each.name.lower()
        ]
        found = recorded(Trace.of(alone))
        assert (found.strategy, found.options) == ("autoregressive", StrategyOptions())
        assert what_if(found).simulated_s > 0


@pytest.mark.parametrize(
    ("name", "value"), [("lookahead", 10**9), ("lookahead", "four"), ("predictor", "nobody")]
)
def test_an_option_that_no_strategy_takes_is_refused(name, value):
    root, *others = spans()
    with pytest.raises(NotReplayable, match=name):
        recorded(Trace.of([told(root, **{name: value}), *others]))
