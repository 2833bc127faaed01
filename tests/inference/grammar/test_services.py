"""Verify and Draft with grammars, over gRPC, on the shipped drafter."""

from __future__ import annotations

import grpc
import pytest
from tests.devices import device
from tests.inference.drafting import bushy
from tests.inference.grammar.vocabularies import description_of, shipped_vocabulary, tokens_in
from tokenizers import Tokenizer

from specmesh import models
from specmesh.decoding.acceptance import verify
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.decoding.processing.processor import LogitProcessor
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.simulated.hashed import SimulatedTarget
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.grammar.answer_mask import AnswerMask
from specmesh.inference.grammar.grammars import Grammars
from specmesh.inference.grammar.states import RecentStates
from specmesh.inference.model import Cancellation
from specmesh.inference.models.context.lookup import ContextModel, PromptLookup
from specmesh.inference.models.simulated.model import ForwardLatency, SimulatedModel
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.mesh.v1alpha1 import (
    drafter_pb2,
    drafter_pb2_grpc,
    model_service_pb2,
    model_service_pb2_grpc,
    tokens_pb2,
    verifier_pb2,
    verifier_pb2_grpc,
)
from specmesh.serving.codec.draft_rules import write_tree_shape
from specmesh.serving.codec.wire import read_distributions, write_sampling, write_tree
from specmesh.serving.errors import error_info, invalid_field
from specmesh.v1 import model_pb2

pytestmark = pytest.mark.usefixtures("patient_drafts")

NEVER = Cancellation()
SCHEMA = Grammar(
    GrammarKind.JSON_SCHEMA,
    '{"type": "object", "properties": {"name": {"type": "string"}, "old": {"type": "boolean"}},'
    ' "required": ["name", "old"], "additionalProperties": false}',
)
BAD = Grammar(GrammarKind.REGEX, "(a")
PROMPT = "# a person, as JSON\n"
MODES = pytest.mark.parametrize(
    "mode", [AcceptanceMode.GREEDY, AcceptanceMode.COUPLED, AcceptanceMode.REJECTION]
)


@pytest.fixture
def model():
    folder = str(models.path(models.DRAFTER))
    return TransformersModel.load(folder, dtype="float32", device=device(), cache_bytes=1 << 24)


@pytest.fixture(scope="module")
def prompt():
    return shipped_vocabulary()[1].encode(PROMPT).ids


def sampled(prompt, mode=AcceptanceMode.COUPLED, grammar=SCHEMA, **fields):
    return Sampling(seed=5, mode=mode, grammar=grammar, num_prompt_tokens=len(prompt), **fields)


async def verified(channel, prefix, tree, sampling, distributions=None):
    message = verifier_pb2.VerifyRequest(
        prefix=tokens_pb2.Prefix(token_ids=prefix),
        tree=write_tree(tree, distributions),
        sampling=write_sampling(sampling),
    )
    return await verifier_pb2_grpc.VerifierServiceStub(channel).Verify(message, timeout=20)


async def drafted(channel, prefix, sampling, *counts):
    """A tree of a drafter and the distributions it was drawn from."""
    shape = bushy((0,), 4, *counts)
    message = drafter_pb2.DraftRequest(
        prefix=tokens_pb2.Prefix(token_ids=prefix),
        from_nodes=(0,),
        depth=shape.depth,
        sampling=write_sampling(sampling),
        shape=write_tree_shape(shape.fixed),
    )
    tree, distributions = EMPTY, {}
    async for response in drafter_pb2_grpc.DrafterServiceStub(channel).Draft(message, timeout=20):
        tree = tree.extend(response.token_ids, response.parents)
        distributions |= read_distributions(response.draft_distributions)
    return tree, distributions


async def features(channel):
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    info = (await stub.GetModel(model_service_pb2.GetModelRequest(), timeout=20)).model
    return info.features


def expected(model, prompt, prefix, tree, sampling, distributions):
    """The verdict by definition, with states that have seen nothing."""
    logits = model.open(prefix, NEVER).score(tree)
    compiled = shipped_vocabulary()[0].compile(sampling.grammar)
    mask = AnswerMask(compiled, RecentStates(), prefix[len(prompt) :])
    rows = LogitProcessor(sampling, prefix, mask).rows(logits, tree)
    return verify(tree, rows, sampling, len(prefix), distributions)


@MODES
async def test_an_answer_is_of_its_grammar_and_each_verdict_what_decoding_says(
    serve, model, prompt, mode
):
    _, tokenizer = shipped_vocabulary()
    reference = TransformersModel.load(
        str(models.path(models.DRAFTER)), dtype="float32", device=device(), cache_bytes=1 << 24
    )
    sampling = sampled(prompt, mode)
    prefix = list(prompt)
    async with serve(model) as channel:
        assert model_pb2.MODEL_FEATURE_GRAMMARS in await features(channel)
        while prefix[-1] != 0 and len(prefix) < len(prompt) + 40:
            tree, distributions = await drafted(channel, prefix, sampling, 2, 2)
            told = await verified(channel, prefix, tree, sampling, distributions)
            verdict = expected(reference, prompt, prefix, tree, sampling, distributions)
            assert tuple(told.accepted_nodes) == verdict.accepted_nodes
            assert told.next_token_id == verdict.next_token
            if mode is not AcceptanceMode.REJECTION:  # the drafter is the target itself
                assert len(told.accepted_nodes) == max(tree.depths)
            prefix += [*tree.tokens_on(told.accepted_nodes), told.next_token_id]
    answer = prefix[len(prompt) :]
    answer = answer[: answer.index(0)] if 0 in answer else answer
    matcher = shipped_vocabulary()[0].compile(SCHEMA).matcher()
    assert matcher.try_consume_tokens(answer) == len(answer)
    assert tokenizer.decode(answer).startswith("{")


async def test_a_draft_holds_only_what_the_grammar_allows(serve, model, prompt):
    grammar = Grammar.of_choices(["abcdef", "abxyz", "no"])
    async with serve(model) as channel:
        tree, _ = await drafted(channel, prompt, sampled(prompt, grammar=grammar), 3, 2)
    compiled = shipped_vocabulary()[0].compile(grammar)
    mask = AnswerMask(compiled, RecentStates(), [])
    for node in range(1, len(tree) + 1):
        *path, token = tree.tokens_on(tree.path(node))
        assert token in tokens_in(mask.allowed(path))


async def test_a_draft_that_leaves_the_grammar_is_rejected_there(serve, model, prompt):
    grammar = Grammar(GrammarKind.REGEX, "[0-9]{3}")
    _, tokenizer = shipped_vocabulary()
    digit, letter = (tokenizer.token_to_id(each) for each in "7x")
    async with serve(model) as channel:
        for tree in (TokenTree.chain([letter, digit]), TokenTree((letter, digit), (0, 0))):
            told = await verified(channel, prompt, tree, sampled(prompt, grammar=grammar))
            assert 1 not in told.accepted_nodes
            assert tokenizer.decode([told.next_token_id]).isdigit()


async def test_an_answer_goes_on_in_the_middle_at_a_replica_that_has_not_seen_it(
    serve, model, prompt
):
    """In the middle of a name, and of a character."""
    _, tokenizer = shipped_vocabulary()
    fresh = TransformersModel.load(
        str(models.path(models.DRAFTER)), dtype="float32", device=device(), cache_bytes=1 << 24
    )
    sampling = sampled(prompt, AcceptanceMode.GREEDY)
    begun = tokenizer.encode('{"name": "Zo', add_special_tokens=False).ids
    begun.append(tokenizer.encode("ë", add_special_tokens=False).ids[0])
    async with serve(model) as channel:
        for length in range(1, len(begun) + 1):
            known = await verified(channel, [*prompt, *begun[:length]], EMPTY, sampling)
    async with serve(fresh) as channel:
        told = await verified(channel, [*prompt, *begun], EMPTY, sampling)
    assert told.next_token_id == known.next_token_id


async def test_the_prompts_tokens_are_no_part_of_the_answer_unless_the_request_says_so(
    serve, model, prompt
):
    grammar = Grammar(GrammarKind.REGEX, "ab")
    _, tokenizer = shipped_vocabulary()
    prefix = [*prompt, tokenizer.token_to_id("a")]
    async with serve(model) as channel:
        of_answer = await verified(channel, prefix, EMPTY, sampled(prompt, grammar=grammar))
        of_prompt = await verified(channel, prefix, EMPTY, sampled(prefix, grammar=grammar))
    assert tokenizer.decode([of_answer.next_token_id]) == "b"
    assert tokenizer.decode([of_prompt.next_token_id]).startswith("a")


async def test_a_bad_grammar_is_refused_by_the_target_in_the_compilers_words(serve, model, prompt):
    async with serve(model) as channel:
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await verified(channel, prompt, EMPTY, sampled(prompt, grammar=BAD))
            assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            wrong = invalid_field(raised.value)
            assert (wrong.field, wrong.reason) == ("sampling.grammar.regex", "unclosed group")


async def test_a_drafter_drafts_without_a_grammar_that_it_can_not_follow(serve, model, prompt):
    async with serve(model) as channel:
        tree, _ = await drafted(channel, prompt, sampled(prompt, grammar=BAD))
        plain, _ = await drafted(channel, prompt, Sampling(seed=5))
    assert tree == plain
    assert len(tree) == 4


async def test_prompt_lookup_has_no_guess_where_the_grammar_allows_none(serve):
    """It has no end of text, so it follows no grammar; what it guesses, the target judges."""
    _, tokenizer = shipped_vocabulary()
    size = tokenizer.get_vocab_size()
    model = ContextModel(description_of(tokenizer.to_str(), size), PromptLookup(size))
    prefix = tokenizer.encode("ab cd ab cd ab").ids
    async with serve(model) as channel:
        assert model_pb2.MODEL_FEATURE_GRAMMARS not in await features(channel)
        tree, _ = await drafted(channel, prefix, sampled(prefix))
    assert len(tree) == 4


async def test_a_target_that_can_not_follow_grammars_says_so(serve):
    latency = ForwardLatency(0, 0)
    model = SimulatedModel(SimulatedTarget(seed=1, vocab_size=300), latency)
    async with serve(model) as channel:
        assert model_pb2.MODEL_FEATURE_GRAMMARS not in await features(channel)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await verified(channel, [5, 6], EMPTY, sampled([5, 6]))
    info = error_info(raised.value)
    assert (info.reason, info.metadata["feature"]) == ("UNSUPPORTED_FEATURE", "GRAMMARS")


@pytest.mark.parametrize(
    "description",
    [
        description_of("", 10, 0),
        description_of(shipped_vocabulary()[1].to_str(), 4096),
        description_of(shipped_vocabulary()[1].to_str(), 4096, 5000),
        description_of(
            Tokenizer.from_str(
                '{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}'
            ).to_str(),
            1,
            0,
        ),
    ],
    ids=["no tokenizer", "no end", "an end outside", "words"],
)
def test_a_model_whose_texts_can_follow_no_grammar_has_none(description):
    assert Grammars.of(description) is None


async def test_a_verdict_tells_how_long_its_grammar_took_to_compile(serve, model, prompt):
    async with serve(model) as channel:
        first, second = [await verified(channel, prompt, EMPTY, sampled(prompt)) for _ in range(2)]
        plain = await verified(channel, prompt, EMPTY, Sampling(seed=5))
    assert first.cost.grammar_ms > 0.3
    assert second.cost.grammar_ms < first.cost.grammar_ms
    assert plain.cost.grammar_ms == 0
