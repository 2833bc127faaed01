"""What ``specmesh calibrate`` observes and writes, and how answers are judged."""

import json

import pytest
import torch
from tests.bench.offline import COUPLED, GREEDY, NUM_TOKENS, PROMPTS, logits_after
from tests.inference.test_heads_folder import digest, read, write_heads
from typer.testing import CliRunner

from specmesh.bench.filter.fidelity import judge
from specmesh.decoding.drafting import draw_children
from specmesh.decoding.predict.calibration import Calibration
from specmesh.decoding.trees.calibrated import CalibratedTrees
from specmesh.decoding.trees.replay import MISSED, NUM_RANKS, UNKNOWN
from specmesh.inference.models.heads.registry import load_heads
from specmesh.inference.models.heads.seen import look
from specmesh.inference.offline import answer
from specmesh.tools.calibrate.__main__ import app
from specmesh.tools.calibrate.collect import collect
from specmesh.tools.calibrate.head_ranks import HeadGuesses
from specmesh.tools.calibrate.ranks import DrafterGuesses, rank
from specmesh.tools.calibrate.ranks import collect as ranks_of


@pytest.fixture
def drafter(load):
    return load("gpt2")


@pytest.mark.parametrize("sampling", [GREEDY, COUPLED])
def test_a_place_is_agreed_where_both_models_say_the_same(target, drafter, sampling):
    (tokens,) = answer(target, PROMPTS[:1], [sampling], NUM_TOKENS)
    places = collect(target, drafter, PROMPTS[:1], sampling, NUM_TOKENS)
    text = list(PROMPTS[0])
    for token, (choices, agreed) in zip(tokens, places, strict=True):
        drawn = draw_children(logits_after(drafter, text), sampling, len(text), 1, 2)
        assert agreed == (drawn.children[0] == token)
        assert choices.token_ids == drawn.choices.token_ids
        assert choices.entropy == pytest.approx(drawn.choices.entropy, abs=1e-4)
        text.append(token)


def test_a_model_agrees_with_itself(target):
    assert all(agreed for _, agreed in collect(target, target, PROMPTS, COUPLED, NUM_TOKENS))
    greedy = answer(target, PROMPTS, [GREEDY] * len(PROMPTS), NUM_TOKENS)
    other = [[(token + 1) % 60 for token in tokens] for tokens in greedy]
    assert judge(target, PROMPTS, greedy).agreement == 1
    # Where the first token is another one, the rest may be what the target says after it.
    assert judge(target, PROMPTS, other).agreement < 1
    assert (
        judge(target, PROMPTS, greedy).log_probability
        > judge(target, PROMPTS, other).log_probability
    )


@pytest.mark.parametrize("sampling", [GREEDY, COUPLED])
def test_ranks_are_those_of_the_drafters_own_choices(target, drafter, sampling):
    (tokens,) = answer(target, PROMPTS[:1], [sampling], NUM_TOKENS)
    (ranks,) = ranks_of(target, DrafterGuesses(drafter), PROMPTS[:1], sampling, NUM_TOKENS)
    text = list(PROMPTS[0])
    for number, token in enumerate(tokens):
        logits = logits_after(drafter, text)
        choices = draw_children(logits, sampling, len(text), NUM_RANKS).children
        assert ranks[number, 0] == (choices.index(token) if token in choices else MISSED)
        text.append(token)
    for number, row in enumerate(ranks):
        left = len(tokens) - number
        assert row[:left].tolist() == ranks[number:, 0].tolist()
        assert set(row[left:].tolist()) == {UNKNOWN}


def test_a_model_guesses_itself_first(target):
    ranks = ranks_of(target, DrafterGuesses(target), PROMPTS, COUPLED, NUM_TOKENS)
    assert all(set(each[:, 0].tolist()) == {0} for each in ranks)


@pytest.mark.parametrize("kind", ["medusa", "recurrent"])
@pytest.mark.parametrize("sampling", [GREEDY, COUPLED])
def test_ranks_of_heads_go_by_where_the_draft_began(target, folders, tmp_path, kind, sampling):
    plain = read(folders, "llama")
    write_heads(tmp_path, plain, kind)
    guesses = HeadGuesses(str(tmp_path), str(folders["llama"]))
    (prompt, *_) = PROMPTS
    (tokens,) = answer(target, [prompt], [sampling], NUM_TOKENS)
    ranks = guesses.ranks(prompt, tokens, sampling)
    assert ranks[0].tolist() == [MISSED] * 3

    heads = load_heads(tmp_path, plain.model, digest(plain))
    text = [*prompt, *tokens]
    for began in range(1, NUM_TOKENS):
        at = len(prompt) + began
        states = heads.begin(look(plain.model, torch.tensor([text[: at - 1]])).hidden[0, -1:])
        for depth in range(3):
            if began + depth >= NUM_TOKENS:
                assert ranks[began, depth] == UNKNOWN
                continue
            one = torch.tensor([text[at + depth - 1]])
            logits, states = heads.step(states, one, torch.tensor([depth]))
            found = rank(logits[0].float().numpy(), sampling, at + depth, text[at + depth])
            assert ranks[began, depth] == found


def test_calibrated_trees_of_the_shipped_pair_beat_chains_on_other_text(tmp_path):
    pytest.importorskip("specmesh.models")
    file = tmp_path / "trees.json"
    options = ["tree", "--prompts", "16", "--tokens", "48", "--temperature", "0.8"]
    options += ["--threads", "1", "--output", str(file), "--json"]
    done = CliRunner().invoke(app, options, catch_exceptions=False)
    rows = json.loads(done.stdout)["rows"]
    assert [row["width"] for row in rows] == [*range(1, 65)] * 2
    assert {row["text"] for row in rows} == {"calibration", "held-out"}
    for row in rows:
        if row["width"] > 8:
            assert row["calibrated"] > row["chain"]
    trees = CalibratedTrees.from_json(file.read_text())
    lengths = [each.acceptance_length for each in trees.nearest(0.8)]
    assert lengths == [row["calibrated"] for row in rows[:64]]


def test_trees_of_heads_are_measured_but_not_written_for_a_strategy_that_grows_its_own(tmp_path):
    options = ["tree", "--heads", str(tmp_path), "--output", str(tmp_path / "trees.json")]
    done = CliRunner().invoke(app, options)
    assert done.exit_code == 2
    assert "--output" in done.stderr
    assert "'heads'" in done.stderr


def test_calibrating_the_shipped_pair_writes_a_file_that_reads_back(tmp_path):
    pytest.importorskip("specmesh.models")
    file = tmp_path / "confidence.json"
    options = ["confidence", "--prompts", "8", "--tokens", "32", "--threads", "1"]
    options += ["--output", str(file), "--json"]
    done = CliRunner().invoke(app, options, catch_exceptions=False)
    report = json.loads(done.stdout)
    assert (report["fitted"], report["places"]) == (256, 256)
    assert 0 <= report["ece"] < 0.25
    for shares in report["agreed_of_kept"].values():
        assert shares["0.2"] > report["agreed"]
    assert Calibration.from_json(file.read_text()).num_positions == 256
