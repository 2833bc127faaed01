"""The benchmark of grammars, and its schemas: every answer is valid, whatever its words."""

import json
from collections import Counter

import jsonschema
import numpy as np
import pytest
from tests.bench.test_lookahead import run as timed
from typer.testing import CliRunner

from specmesh.bench.grammar.__main__ import app
from specmesh.bench.grammar.answers import SchemaAnswer, figures_of, is_valid
from specmesh.bench.grammar.masks import measure_masks
from specmesh.bench.grammar.schemas import schemas
from specmesh.bench.grammar.vocabularies import made_up
from specmesh.client import FinishReason
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.decoding.processing.masks import only
from specmesh.inference.grammar.states import GrammarState
from specmesh.inference.grammar.vocabulary import Vocabulary

ENTRIES = 2_000
MAX_TOKENS = 400


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary.of(made_up(ENTRIES))


def random_answer(vocabulary, schema, seed):
    """An answer of random words, or None if it has not ended in time."""
    rng = np.random.default_rng(seed)
    compiled = vocabulary.compile(Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema)))
    state, tokens = GrammarState(compiled), []
    while len(tokens) < MAX_TOKENS:
        state.move_to(tokens)
        logits = rng.standard_normal(ENTRIES, np.float32)
        token = int(only(state.allowed(), logits).argmax())
        if token == ENTRIES - 1:
            return vocabulary._tokenizer.decode_bytes(tokens).decode()
        tokens.append(token)
    return None


def check(vocabulary, number, seeds):
    told = Counter()
    for schema in schemas(number):
        jsonschema.Draft202012Validator.check_schema(schema)
        for seed in range(seeds):
            answer = random_answer(vocabulary, schema, seed)
            told[answer is None or is_valid(answer, schema)] += answer is not None
            assert answer is None or is_valid(answer, schema), (schema, answer)
    return told[True]


def test_every_answer_to_forty_schemas_is_valid(vocabulary):
    assert check(vocabulary, number=40, seeds=1) >= 35


def test_two_hundred_schemas(vocabulary):
    assert check(vocabulary, number=200, seeds=5) >= 900


def test_schemas_are_the_same_at_every_call_and_each_another():
    assert schemas(40) == schemas(60)[:40]
    assert len({json.dumps(each) for each in schemas(60)}) == 60


def answer(number, strategy, seconds, *, text="{}", token_ids=(1, 2), free=False, ended=True):
    found = timed(number, None, seconds, token_ids, strategy).result
    reason = FinishReason.END_OF_TEXT if ended else FinishReason.LENGTH
    object.__setattr__(found, "text", text)
    object.__setattr__(found, "finish_reason", reason)
    return SchemaAnswer(number, strategy, 0.0, free, found, seconds)


SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        ("autoregressive", "is what the strategy is compared with"),
        ("speculativ", "speculative"),
    ],
)
def test_a_strategy_that_cannot_be_compared_is_refused_before_a_mesh_starts(strategy, why):
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["--strategy", strategy])
    assert done.exit_code == 2
    assert why in done.stderr


def test_figures_are_of_all_answers():
    answers = [
        answer(0, "autoregressive", 2.0),
        answer(0, "speculative", 1.0),
        answer(1, "autoregressive", 2.0, text="{", ended=False),
        answer(1, "speculative", 1.0, text="{", ended=False),
        answer(0, "autoregressive", 3.0, free=True, text="x"),
        answer(0, "speculative", 2.0, free=True, text="x"),
    ]
    found = figures_of(answers, [SCHEMA, SCHEMA])
    assert (found.num_answers, found.num_ended, found.num_valid) == (4, 2, 2)
    assert (found.valid, found.identical) == (True, True)
    assert (found.speedup, found.speedup_without) == (2, 1.5)
    assert (found.accepted_per_verify, found.accepted_per_verify_without) == (1, 1)


def test_an_answer_that_is_not_valid_and_one_that_differs_are_told():
    answers = [answer(0, "autoregressive", 2.0), answer(0, "speculative", 1.0, text='{"a": 1}')]
    free = [answer(0, each, 1.0, free=True) for each in ("autoregressive", "speculative")]
    assert not figures_of([*answers, *free], [SCHEMA]).valid
    answers[1] = answer(0, "speculative", 1.0, token_ids=(1, 3))
    assert not figures_of([*answers, *free], [SCHEMA]).identical


def test_masks_are_timed_by_their_steps():
    found = measure_masks(400, schemas(2))
    assert found.entries == 400
    steps = found.match_us + found.find_us + found.apply_us
    assert found.us_per_token == pytest.approx(steps)
    assert 0 < found.us_per_token <= found.slowest_us


def test_a_mesh_is_asked_and_its_answers_are_valid_and_the_same(bench, no_process_left):
    sizes = ("--schemas", "2", "--temperature", "0", "--tokens", "48", "--entries", "400")
    done = bench("grammar", *sizes, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["identical"]
    assert found["valid"]
    assert found["num_answers"] == 4
    assert found["mask_us_per_token"] == found["masks"][0]["us_per_token"] > 0
    assert found["speedup"] > 0
    assert found["speedup_without"] > 0
