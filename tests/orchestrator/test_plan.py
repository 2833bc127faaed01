"""A request becomes a plan, or an error that names the field."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from google.protobuf import text_format
from tests.orchestrator.goals import examples
from tests.orchestrator.model import (
    CONTEXT_TOKENS,
    END_OF_TEXT,
    TOKENIZER,
    TOKENIZER_JSON,
    VOCAB_SIZE,
    model_info,
)

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.predict.predictors import PREDICTORS
from specmesh.decoding.sampling import AcceptanceMode
from specmesh.orchestrator.answers.session_codec import settled
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.replicas.transport.peer_model import PeerModel
from specmesh.orchestrator.requests.plan import (
    Defaults,
    RequestPlan,
    check_model,
    check_replicas,
    make_plan,
)
from specmesh.orchestrator.requests.prompts import PromptReader
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.options import OPTIONS
from specmesh.serving.errors import FailedPreconditionStatus, NotFoundStatus
from specmesh.v1 import generation_pb2, model_pb2, speculation_pb2

TARGET = Target.of(PeerModel(model_info("toy"), TOKENIZER_JSON))
DEFAULTS = Defaults("speculative", 4)
DICE = random.Random(1)
STOPS = 'stop_strings: "x" '


def plan(request: str) -> RequestPlan:
    """The plan for a request in protobuf's text format."""
    message = text_format.Parse(request, generation_pb2.GenerateRequest())
    return planned(message, DEFAULTS)


def planned(
    request: generation_pb2.GenerateRequest, defaults: Defaults, target: Target = TARGET
) -> RequestPlan:
    prompt = asyncio.run(PromptReader().read(request, target))
    return make_plan(request, prompt, target, defaults, DICE)


def planned_within(kv_capacity_tokens: int, request: str) -> RequestPlan:
    """The plan where the least replica holds so many tokens."""
    message = text_format.Parse(request, generation_pb2.GenerateRequest())
    target = replace(TARGET, kv_capacity_tokens=kv_capacity_tokens)
    made = planned(message, DEFAULTS, target)
    check_replicas(made, target)
    return made


def tokens(count: int) -> str:
    return "tokens { " + "ids: 7 " * count + "} "


def test_open_fields_take_the_defaults():
    made = plan('text: "hello"')
    assert made.prompt == tuple(TOKENIZER.encode("hello").ids)
    assert made.strategy == "speculative"
    assert made.goal.lookahead == 4
    assert made.goal.num_branches is made.goal.predictor is None
    assert made.goal.max_tokens == CONTEXT_TOKENS - len(made.prompt)
    assert made.goal.end_of_text_ids == {END_OF_TEXT}
    assert made.goal.stop_token_ids == frozenset()
    assert made.stopping.stop_strings == ()
    assert made.sampling.temperature == made.sampling.top_p == 1
    assert made.sampling.top_k == 0
    assert made.sampling.mode is AcceptanceMode.COUPLED


def test_lookahead_without_a_default_is_left_to_the_strategy():
    request = generation_pb2.GenerateRequest(text="a")
    assert planned(request, Defaults("dsi")).goal.lookahead is None


@pytest.mark.parametrize("option", ["lookahead: 4", "width: 8", 'predictor: "phi"'])
def test_an_option_that_the_default_strategy_does_not_take_needs_a_strategy(option):
    def under_auto(text):
        request = text_format.Parse(text, generation_pb2.GenerateRequest())
        return planned(request, Defaults("auto"))

    field = f"speculation.{option.partition(':')[0]}"
    with pytest.raises(InvalidField, match="the default strategy, 'auto', takes none") as refused:
        under_auto(f'text: "a" speculation {{ {option} }}')
    assert refused.value.field == field
    named = f'text: "a" speculation {{ strategy: "tree" {option} }}'
    assert under_auto(named).strategy == "tree"
    begun = f'text: "a" speculation {{ {option} }} received {{ token_ids: 5 }}'
    assert under_auto(begun).strategy == "auto"


def test_seed_is_drawn_anew_for_each_request_without_one():
    assert plan('text: "a"').sampling.seed != plan('text: "a"').sampling.seed
    assert plan('text: "a" sampling { seed: 0 }').sampling.seed == 0


def test_every_field_is_taken_over():
    made = plan(
        """
        model: "toy" tokens { ids: [5, 6] }
        sampling { temperature: 0.5 top_k: 3 top_p: 0.25 seed: 9
                   acceptance_mode: ACCEPTANCE_MODE_REJECTION }
        stopping { max_tokens: 8 stop_token_ids: [1, 2] stop_strings: ["x", "yz"]
                   ignore_end_of_text: true }
        speculation { strategy: "autoregressive" lookahead: 7 num_branches: 3 predictor: "phi" }
        """
    )
    assert made.prompt == (5, 6)
    assert made.strategy == "autoregressive"
    assert made.goal.lookahead == 7
    assert made.goal.num_branches == 3
    assert made.goal.predictor == "phi"
    assert made.goal.seed == made.sampling.seed
    assert made.goal.max_tokens == 8
    assert made.goal.stop_token_ids == {1, 2}
    assert made.goal.end_of_text_ids == frozenset()
    assert made.stopping.stop_strings == ("x", "yz")
    sampling = made.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.5, 3, 0.25)
    assert (sampling.seed, sampling.mode) == (9, AcceptanceMode.REJECTION)


def test_a_settled_request_means_the_same_again():
    made = plan(
        """
        tokens { ids: 5 }
        sampling { temperature: 0.5 seed: 9 }
        stopping { max_tokens: 8 stop_token_ids: 1 stop_strings: "x" }
        speculation { strategy: "filter" lookahead: 7 num_branches: 3 predictor: "phi" width: 9
                      filter { scorer: "margin" follow_load { lowest: 0.25 highest: 0.5 } } }
        """
    )
    again = make_plan(settled(made, "toy"), made.prompt, TARGET, Defaults("speculative"), DICE)
    assert again == made


def test_a_settled_request_has_what_replicas_need_to_process_logits():
    made = plan(
        """
        tokens { ids: [5, 6] }
        sampling { min_p: 0.25 repetition_penalty: 1.5 logit_bias { key: 9 value: 2 }
                   banned_sequences { token_ids: [7, 8] } bad_words: "hello" min_tokens: 3 }
        stopping { max_tokens: 8 stop_token_ids: 9 }
        """
    )
    sampling = made.sampling
    assert sampling.num_prompt_tokens == 2
    assert sampling.end_token_ids == (END_OF_TEXT, 9)
    assert set(sampling.banned_sequences) == {
        (7, 8),
        tuple(TOKENIZER.encode("hello").ids),
        tuple(TOKENIZER.encode(" hello").ids),
    }
    again = make_plan(settled(made, "toy"), made.prompt, TARGET, DEFAULTS, DICE)
    assert again == made


def test_a_grammar_is_settled_with_its_source():
    made = plan('text: "a" sampling { grammar { choice { texts: ["yes", "né"] } } }')
    assert made.sampling.grammar.choices == ["yes", "né"]
    assert model_pb2.MODEL_FEATURE_GRAMMARS in made.features
    again = make_plan(settled(made, "toy"), made.prompt, TARGET, DEFAULTS, DICE)
    assert again == made


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ("sampling { grammar {} }", "sampling.grammar"),
        ('sampling { grammar { regex: "" } }', "sampling.grammar.regex"),
        ("sampling { grammar { json_object: false } }", "sampling.grammar.json_object"),
        ("sampling { grammar { choice {} } }", "sampling.grammar.choice.texts"),
        (f'sampling {{ grammar {{ ebnf: "{"x" * 65537}" }} }}', "sampling.grammar.ebnf"),
        (
            'sampling { grammar { regex: "a" } } stopping { ignore_end_of_text: true }',
            "stopping.ignore_end_of_text",
        ),
        (
            'sampling { grammar { regex: "a" } } speculation { strategy: "filter" }',
            "speculation.strategy",
        ),
    ],
    ids=lambda value: value[:40],
)
def test_a_grammar_that_no_replica_could_take_is_refused(fields, refused):
    with pytest.raises(InvalidField) as error:
        plan(f'text: "a" {fields}')
    assert error.value.field == refused


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_settled_request_keeps_where_the_answer_begins(count):
    made = plan(f"tokens {{ ids: [5, 6] }} sampling {{ min_p: 0.25 num_prompt_tokens: {count} }}")
    assert made.sampling.num_prompt_tokens == count
    assert make_plan(settled(made, "toy"), made.prompt, TARGET, DEFAULTS, DICE) == made


def test_a_lossy_strategy_names_what_it_excludes_and_gets_no_recommended_parameter():
    with pytest.raises(InvalidField, match=r"excludes sampling\.typical_p"):
        plan('text: "a" sampling { min_p: 0 typical_p: 0.5 } speculation { strategy: "filter" }')
    info = model_info("toy", generation_defaults={"temperature": 0.5, "min_p": 0.25})
    request = generation_pb2.GenerateRequest(text="a", speculation={"strategy": "filter"})
    as_model_says = replace(DEFAULTS, as_model_says=True)
    made = planned(request, as_model_says, replace(TARGET, info=info))
    assert (made.sampling.temperature, made.sampling.min_p) == (0.5, 0)


def test_a_request_without_processing_reads_as_older_replicas_know_it():
    made = plan('text: "a" sampling { min_p: 0 typical_p: 1 presence_penalty: 0 seed: 1 }')
    told = {field.name for field, _ in settled(made, "toy").sampling.ListFields()}
    assert told == {"seed", "acceptance_mode"}


def test_parameters_that_the_model_recommends_apply_where_a_request_leaves_them_unset():
    info = model_info("toy", generation_defaults={"temperature": 0.5, "top_k": 9, "min_p": 0.25})
    target = replace(TARGET, info=info)
    request = generation_pb2.GenerateRequest(text="a", sampling={"temperature": 1.0, "seed": 1})
    plain = planned(request, DEFAULTS, target).sampling
    assert (plain.temperature, plain.top_k, plain.min_p) == (1, 0, 0)
    made = planned(request, replace(DEFAULTS, as_model_says=True), target)
    assert (made.sampling.temperature, made.sampling.top_k, made.sampling.min_p) == (1, 9, 0.25)
    # A resumed answer has what was settled when it began, even if another value is recommended.
    again = make_plan(settled(made, "toy"), made.prompt, target, DEFAULTS, DICE)
    assert again == made


def test_min_tokens_are_cut_to_the_context_as_max_tokens_are():
    made = plan(
        tokens(CONTEXT_TOKENS - 3) + "sampling { min_tokens: 5 } stopping { max_tokens: 8 }"
    )
    assert (made.sampling.min_tokens, made.stopping.max_tokens) == (3, 3)
    again = make_plan(settled(made, "toy"), made.prompt, TARGET, DEFAULTS, DICE)
    assert again == made


@pytest.mark.parametrize(
    ("num_own", "stopping", "limit"),
    [
        ("", "stopping { max_tokens: 4 }", "stopping.max_tokens"),
        ("", "", "3: there is room for no more"),
        (f"num_prompt_tokens: {CONTEXT_TOKENS - 5}", "", "5: there is room for no more"),
    ],
    ids=["asked", "room", "room_behind_the_prompt"],
)
def test_more_min_tokens_than_an_answer_may_have_are_refused_with_the_limit(
    num_own, stopping, limit
):
    with pytest.raises(InvalidField, match=f"must be at most {limit}") as refused:
        plan(f"{tokens(CONTEXT_TOKENS - 3)} sampling {{ min_tokens: 6 {num_own} }} {stopping}")
    assert refused.value.field == "sampling.min_tokens"


def test_end_tokens_are_not_banned_where_they_do_not_end_the_answer():
    made = plan('text: "a" sampling { min_tokens: 3 } stopping { ignore_end_of_text: true }')
    assert made.sampling.end_token_ids == ()


def test_every_option_of_the_protocol_is_declared_for_strategies():
    fields = {each.name for each in speculation_pb2.SpeculationOptions.DESCRIPTOR.fields}
    assert set(OPTIONS) == fields - {"strategy", "filter"}


def test_strategies_name_options_that_there_are_and_each_is_named_by_one():
    named = {option for strategy in STRATEGIES.values() for option in strategy.options}
    assert named == {*OPTIONS, "filter"}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_reaches_the_goal_and_a_resumed_answer(name):
    for value in examples(OPTIONS[name]):
        request = generation_pb2.GenerateRequest(text="a", speculation={name: value})
        made = planned(request, DEFAULTS)
        assert getattr(made.goal, name) == value
        assert getattr(settled(made, "toy").speculation, name) == value


def test_max_tokens_is_cut_to_the_context():
    assert plan(tokens(CONTEXT_TOKENS - 2) + "stopping { max_tokens: 9 }").goal.max_tokens == 2
    assert plan(tokens(CONTEXT_TOKENS - 1)).goal.max_tokens == 1


def test_without_max_tokens_an_answer_is_as_long_as_the_kv_cache_allows():
    assert planned_within(64, tokens(40)).goal.max_tokens == 24
    assert planned_within(10_000, tokens(40)).goal.max_tokens == CONTEXT_TOKENS - 40


def test_an_answer_that_the_kv_cache_can_just_hold_is_let_in():
    assert planned_within(64, tokens(40) + "stopping { max_tokens: 24 }").goal.max_tokens == 24


@pytest.mark.parametrize(
    ("request_text", "max_tokens"),
    [
        (tokens(40) + "stopping { max_tokens: 25 }", "25"),
        (tokens(64), "1"),
        (tokens(CONTEXT_TOKENS - 2) + "stopping { max_tokens: 9 }", "2"),
    ],
)
def test_what_can_never_fit_into_kv_is_refused_with_numbers(request_text, max_tokens):
    with pytest.raises(FailedPreconditionStatus) as raised:
        planned_within(64, request_text)
    assert raised.value.reason == "KV_CACHE_TOO_SMALL"
    assert raised.value.metadata["max_tokens"] == max_tokens
    assert raised.value.metadata["kv_capacity_tokens"] == "64"


@pytest.mark.parametrize(
    ("field", "request_text"),
    [
        ("prompt", ""),
        ("text", 'text: ""'),
        ("tokens.ids", "tokens {}"),
        ("tokens.ids[1]", f"tokens {{ ids: [1, {VOCAB_SIZE}] }}"),
        ("tokens.ids", tokens(CONTEXT_TOKENS)),
        ("text", f'text: "{"a b " * CONTEXT_TOKENS}"'),
        ("sampling.temperature", tokens(1) + "sampling { temperature: -0.5 }"),
        ("sampling.temperature", tokens(1) + "sampling { temperature: 101 }"),
        ("sampling.temperature", tokens(1) + "sampling { temperature: nan }"),
        ("sampling.top_p", tokens(1) + "sampling { top_p: 0 }"),
        ("sampling.top_p", tokens(1) + "sampling { top_p: 1.5 }"),
        ("sampling.seed", tokens(1) + f"sampling {{ seed: {2**53} }}"),
        ("sampling.acceptance_mode", tokens(1) + "sampling { acceptance_mode: 77 }"),
        ("stopping.max_tokens", tokens(1) + "stopping { max_tokens: 0 }"),
        (
            "stopping.stop_token_ids[0]",
            tokens(1) + f"stopping {{ stop_token_ids: {VOCAB_SIZE} }}",
        ),
        ("stopping.stop_token_ids", tokens(1) + f"stopping {{ {'stop_token_ids: 3 ' * 257} }}"),
        ("stopping.stop_strings", tokens(1) + f"stopping {{ {STOPS * 17} }}"),
        ("stopping.stop_strings[0]", tokens(1) + 'stopping { stop_strings: "" }'),
        (
            "stopping.stop_strings[0]",
            tokens(1) + f'stopping {{ stop_strings: "{"x" * 257}" }}',
        ),
        ("speculation.lookahead", tokens(1) + "speculation { lookahead: 0 }"),
        ("speculation.lookahead", tokens(1) + "speculation { lookahead: 65 }"),
        ("speculation.num_branches", tokens(1) + "speculation { num_branches: 0 }"),
        ("speculation.num_branches", tokens(1) + "speculation { num_branches: 65 }"),
        ("speculation.predictor", tokens(1) + 'speculation { predictor: "crystal ball" }'),
        ("speculation.strategy", tokens(1) + 'speculation { strategy: "magic" }'),
    ],
)
def test_wrong_field_is_named(field, request_text):
    with pytest.raises(InvalidField) as raised:
        plan(request_text)
    assert raised.value.field == field


@pytest.mark.parametrize(
    "request_text",
    [
        f"stopping {{ {STOPS * 16} }}",
        f"stopping {{ {'stop_token_ids: 3 ' * 256} }}",
        f'stopping {{ stop_strings: "{"x" * 256}" }}',
        "speculation { lookahead: 64 }",
        "speculation { lookahead: 1 num_branches: 1 }",
        "speculation { num_branches: 64 }",
        "sampling { temperature: 100 top_p: 1 }",
        f"sampling {{ seed: {2**53 - 1} }}",
    ],
)
def test_limits_themselves_are_allowed(request_text):
    plan(tokens(1) + request_text)


def test_unknown_strategy_lists_the_known_ones():
    with pytest.raises(InvalidField) as raised:
        plan(tokens(1) + 'speculation { strategy: "magic" }')
    assert all(name in raised.value.reason for name in STRATEGIES)
    assert "did you mean" not in raised.value.reason


def test_a_misspelt_strategy_gets_the_nearest_one():
    with pytest.raises(InvalidField) as raised:
        plan(tokens(1) + 'speculation { strategy: "specualtive" }')
    assert raised.value.reason.endswith("; did you mean 'speculative'?")


def test_unknown_model_is_not_found():
    with pytest.raises(NotFoundStatus, match="toy") as raised:
        check_model("other", TARGET)
    assert raised.value.reason == "MODEL_NOT_FOUND"


def test_unknown_predictor_lists_the_known_ones():
    with pytest.raises(InvalidField) as raised:
        plan(tokens(1) + 'speculation { predictor: "magic" }')
    assert all(name in raised.value.reason for name in PREDICTORS)
