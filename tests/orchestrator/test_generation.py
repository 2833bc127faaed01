"""GenerationService over a socket, in front of a mesh of fake peers."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from tests.orchestrator.answers import (
    NUM_TOKENS,
    PROMPT,
    PROMPT_IDS,
    alone,
    collect,
    refusal,
    request,
    said,
)
from tests.orchestrator.conftest import until
from tests.orchestrator.model import TOKENIZER, VOCAB_SIZE, train_tokenizer
from tests.orchestrator.peers import (
    NOT_SERVING,
    Drafter,
    Filter,
    Hold,
    Verifier,
    hang,
    passing,
    raising,
)

from specmesh.decoding.errors import InvalidField
from specmesh.mesh.v1alpha1.drafter_pb2 import DraftResponse
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.serving.errors import (
    FailedPreconditionStatus,
    ResourceExhaustedStatus,
    UnavailableStatus,
    invalid_field,
)
from specmesh.serving.templates.tokenizers import fingerprint
from specmesh.v1 import events_pb2, served_model_pb2
from specmesh.v1 import generation_pb2 as pb

GREEDY = {"temperature": 0}
COUPLED = {"temperature": 0.8, "seed": 11}


@pytest.mark.parametrize("sampling", [GREEDY, COUPLED], ids=["greedy", "coupled"])
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_answer_is_what_the_target_says_alone(connect, serve, strategy, sampling):
    verifiers, drafters = [Verifier(), Verifier()], [Drafter(), Drafter()]
    stub = await serve(await connect(verifiers, drafters, [Filter()]))
    asked = request(sampling=sampling, speculation={"strategy": strategy})
    answer = await collect(stub.Generate(asked))
    assert answer.tokens == alone(asked.sampling)
    assert answer.text == said(answer.tokens)
    assert answer.started.strategy == strategy
    assert answer.finished.finish_reason == events_pb2.FINISH_REASON_LENGTH


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_draft_that_was_drawn_from_nothing_costs_the_round_alone(connect, serve, strategy):
    verifier, drafter = Verifier(), Drafter()
    drafter.corrupt = lambda message: message.ClearField("draft_distributions")
    verifier.corrupt = lambda message: drafter.corrupt(message.next_draft)
    stub = await serve(await connect([verifier], [drafter], [Filter()]))
    sampling = {"temperature": 0.8, "seed": 11, "acceptance_mode": "ACCEPTANCE_MODE_REJECTION"}
    asked = request(sampling=sampling, speculation={"strategy": strategy})
    answer = await collect(stub.Generate(asked))
    assert len(answer.tokens) == NUM_TOKENS
    assert answer.finished.finish_reason == events_pb2.FINISH_REASON_LENGTH
    assert answer.finished.stats.num_accepted_tokens == 0


async def test_started_settles_the_request_and_finished_counts_it(connect, serve):
    stub = await serve(await connect([Verifier()], [Drafter(agreement=1)]))
    answer = await collect(stub.Generate(request()))
    started, stats = answer.started, answer.finished.stats
    assert (started.model, started.strategy, started.epoch) == ("toy", "speculative", 1)
    assert started.num_prompt_tokens == stats.num_prompt_tokens == len(PROMPT_IDS)
    assert answer.chunks[0].first_index == 0
    assert stats.num_output_tokens == NUM_TOKENS
    # Eight rounds of four draft tokens and the target's own.
    assert stats.num_verify_calls == NUM_TOKENS // 5
    assert stats.num_verified_tokens == stats.num_accepted_tokens == NUM_TOKENS // 5 * 4
    assert stats.num_wasted_tokens == 0
    assert 0 < stats.time_to_first_token_ms <= stats.duration_ms


async def test_each_chunk_counts_what_the_answer_has_taken_until_then(connect, serve):
    stub = await serve(await connect([Verifier()], [Drafter(agreement=1)]))
    answer = await collect(stub.Generate(request()))
    num_tokens = 0
    for chunk in answer.chunks:
        num_tokens += len(chunk.token_ids)
        assert chunk.stats.num_prompt_tokens == len(PROMPT_IDS)
        assert chunk.stats.num_output_tokens == num_tokens
        assert chunk.stats.num_verify_calls >= num_tokens // 5
        assert chunk.stats.num_accepted_tokens >= num_tokens // 5 * 4
        assert 0 < chunk.stats.time_to_first_token_ms <= chunk.stats.duration_ms
    timeless = answer.finished.stats
    for counted in (timeless, chunk.stats):
        counted.ClearField("duration_ms")
    assert chunk.stats == timeless


async def test_tokens_of_the_prompt_that_were_cached_are_counted(connect, serve):
    """By the replica of the first verification, which tells of all tokens before the draft."""
    verifier = Verifier()
    stub = await serve(await connect([verifier], [Drafter()]))
    for told, counted in [(0, 0), (16, 16), (10_000, len(PROMPT_IDS))]:
        verifier.cost.num_cached_tokens = told
        hold = Hold()
        verifier.faults.extend([passing, hold])
        answering = asyncio.ensure_future(collect(stub.Generate(request())))
        await hold.reached.wait()
        verifier.cost.num_cached_tokens = 32  # of later ones nothing is told
        hold.released.set()
        assert (await answering).finished.stats.num_cached_tokens == counted


async def test_seed_that_was_drawn_is_reported(connect, serve):
    stub = await serve(await connect([Verifier()], [Drafter()]))
    answer = await collect(stub.Generate(request(sampling={"temperature": 0.8})))
    again = request(sampling={"temperature": 0.8, "seed": answer.started.seed})
    assert answer.tokens == alone(again.sampling)


async def test_stop_string_ends_text_and_tokens(connect, serve):
    stub = await serve(await connect([Verifier()], [Drafter()]))
    tokens = alone(request().sampling)
    text = said(tokens)
    stop = next(text[at : at + 3] for at in range(9, len(text)) if text[at : at + 3].isascii())
    asked = request(stopping={"max_tokens": NUM_TOKENS, "stop_strings": [stop]})
    answer = await collect(stub.Generate(asked))
    assert answer.text == text[: text.index(stop)]
    assert answer.finished.finish_reason == events_pb2.FINISH_REASON_STOP
    assert answer.tokens == tokens[: len(answer.tokens)]
    assert stop in said(answer.tokens)
    assert stop not in said(answer.tokens[:-1])


async def test_stop_string_that_the_end_completes_is_cut_off_too(connect, serve):
    """A character that the last token breaks off is U+FFFD only because nothing follows."""
    stub = await serve(await connect([Verifier()], [Drafter()]))
    tokens = alone(request().sampling)
    texts = [said(tokens[:count]) for count in range(NUM_TOKENS + 1)]
    num_tokens = next(
        count
        for count in range(9, NUM_TOKENS)
        if texts[count].endswith("\ufffd") and not texts[count + 1].startswith(texts[count])
    )
    stop = texts[num_tokens][-2:]
    assert stop not in texts[num_tokens][:-1]
    stopping = {"max_tokens": num_tokens, "stop_strings": [stop]}
    answer = await collect(stub.Generate(request(stopping=stopping)))
    assert answer.text == texts[num_tokens][:-2]
    assert answer.tokens == tokens[:num_tokens]
    assert answer.finished.finish_reason == events_pb2.FINISH_REASON_STOP


async def test_stop_token_is_the_last_one_reported(connect, serve):
    stub = await serve(await connect([Verifier()], [Drafter(agreement=1)]))
    tokens = alone(request().sampling)
    asked = request(stopping={"max_tokens": NUM_TOKENS, "stop_token_ids": [tokens[7]]})
    answer = await collect(stub.Generate(asked))
    assert answer.tokens == tokens[: tokens.index(tokens[7]) + 1]
    assert answer.finished.finish_reason == events_pb2.FINISH_REASON_STOP


async def test_prompt_lookup_that_finds_nothing_costs_no_answer(connect, serve):
    drafter = Drafter("prompt-lookup", tokenizer_fingerprint="")
    drafter.tokenizer_json = ""
    drafter.max_levels = 0
    stub = await serve(await connect([Verifier()], [drafter]))
    answer = await collect(stub.Generate(request()))
    assert answer.tokens == alone(request().sampling)
    assert answer.finished.stats.num_verified_tokens == 0


async def test_the_next_turn_goes_to_the_replica_that_holds_the_turns_before(connect, serve):
    verifiers = [Verifier(), Verifier()]
    hold = Hold()
    verifiers[0].faults.append(hold)  # so that the second of two questions goes elsewhere
    stub = await serve(await connect(verifiers))
    alone_at = {"strategy": "autoregressive"}
    first = asyncio.create_task(collect(stub.Generate(request(speculation=alone_at))))
    await hold.reached.wait()
    asked = list(range(1, 40))
    second = await collect(stub.Generate(request(tokens={"ids": asked}, speculation=alone_at)))
    hold.released.set()
    await first
    for each in verifiers:
        each.requests.clear()
    asked += [*second.tokens, 7, 8]
    await collect(stub.Generate(request(tokens={"ids": asked}, speculation=alone_at)))
    assert not verifiers[0].requests
    assert verifiers[1].requests[0].prefix.base_length == (len(asked) - 2) // 16 * 16


@pytest.mark.parametrize("stuck", ["verifier", "drafter"])
async def test_cancelled_request_cancels_the_work_behind_it(connect, serve, stuck):
    peers = {"verifier": Verifier(), "drafter": Drafter()}
    stub = await serve(await connect([peers["verifier"]], [peers["drafter"]]))
    peers[stuck].always = hang
    call = stub.Generate(request())
    await asyncio.wait_for(peers[stuck].arrived.wait(), 10)
    call.cancel()
    await asyncio.wait_for(peers[stuck].cancelled.wait(), 10)


async def test_drafter_that_goes_within_an_answer_does_no_harm(connect, serve):
    drafter = Drafter()
    stub = await serve(await connect([Verifier()], [drafter]))
    second = Hold()
    drafter.faults.extend([passing, second])
    call = stub.Generate(request())
    begun = await collect(call, num_chunks=1)
    await asyncio.wait_for(second.reached.wait(), 10)
    await drafter.die()
    answer = await collect(call, begun=begun)
    assert answer.tokens == alone(request().sampling)


class Senseless(Drafter):
    """Drafts what no tree or vocabulary holds."""

    def __init__(self, token_ids, parents):
        super().__init__()
        self._draft = DraftResponse(token_ids=token_ids, parents=parents)

    async def Draft(self, request, context):  # noqa: N802
        yield self._draft


@pytest.mark.parametrize(
    ("token_ids", "parents"),
    [([1, 2], [0, 2]), ([1, 1], [0, 0]), ([1, 2], [0]), ([VOCAB_SIZE], [0])],
    ids=["cycle", "twins", "lengths differ", "outside the vocabulary"],
)
async def test_draft_that_makes_no_sense_costs_only_speed(connect, serve, token_ids, parents):
    stub = await serve(await connect([Verifier()], [Senseless(token_ids, parents)]))
    asked = request(sampling=GREEDY)
    answer = await collect(stub.Generate(asked))
    assert answer.tokens == alone(asked.sampling)


async def test_verifier_that_goes_within_an_answer_does_no_harm(connect, serve):
    verifiers = [Verifier(), Verifier()]
    stub = await serve(await connect(verifiers, [Drafter()]))
    second = Hold()
    verifiers[0].faults.extend([passing, second])
    call = stub.Generate(request())
    begun = await collect(call, num_chunks=1)
    await asyncio.wait_for(second.reached.wait(), 10)
    await verifiers[0].die()
    answer = await collect(call, begun=begun)
    assert answer.tokens == alone(request().sampling)


async def test_drafter_that_is_away_for_now_costs_only_speed(connect, serve):
    drafter = Drafter()
    behind = await connect([Verifier()], [drafter])
    await drafter.set_health(NOT_SERVING)
    await until(lambda: not behind.mesh.drafters.ready, *behind.mesh.drafters.peers)
    answer = await collect((await serve(behind)).Generate(request()))
    assert answer.tokens == alone(request().sampling)
    assert answer.started.strategy == "speculative"
    assert drafter.requests == []


async def test_no_drafter_at_all_is_refused(connect, serve):
    stub = await serve(await connect([Verifier()]))
    expected = (grpc.StatusCode.FAILED_PRECONDITION, "NO_FITTING_DRAFTER")
    assert await refusal(stub.Generate(request())) == expected
    unspeculated = request(speculation={"strategy": "autoregressive"})
    assert (await collect(stub.Generate(unspeculated))).tokens == alone(request().sampling)


async def test_drafter_that_does_not_fit_is_no_drafter(connect, serve):
    drafter = Drafter(tokenizer_fingerprint="beef")
    drafter.tokenizer_json = train_tokenizer(280).to_str()
    drafter.info.tokenizer_fingerprint = fingerprint(drafter.tokenizer_json)
    stub = await serve(await connect([Verifier()], [drafter]))
    expected = (grpc.StatusCode.FAILED_PRECONDITION, "NO_FITTING_DRAFTER")
    assert await refusal(stub.Generate(request())) == expected


async def test_wrong_field_and_unknown_model_are_told(connect, serve):
    stub = await serve(await connect([Verifier()], [Drafter()]))
    wrong = request(sampling={"temperature": -1})
    expected = (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert await refusal(stub.Generate(wrong)) == expected
    unknown = (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND")
    assert await refusal(stub.Generate(request(model="other"))) == unknown


async def test_mesh_without_a_known_target_is_unavailable(connect, serve):
    stub = await serve(await connect([]))
    expected = (grpc.StatusCode.UNAVAILABLE, "NO_VERIFIER")
    assert await refusal(stub.Generate(request())) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            # Longer than the answer may take: else it would be waited for.
            ResourceExhaustedStatus("QUEUE_FULL", "full", retry_after_s=3600),
            (grpc.StatusCode.RESOURCE_EXHAUSTED, "VERIFIERS_BUSY"),
        ),
        (UnavailableStatus("DRAINING", "going"), (grpc.StatusCode.UNAVAILABLE, "VERIFIER_LOST")),
        (
            FailedPreconditionStatus("KV_CACHE_TOO_SMALL", "needs 70 tokens, of 64"),
            (grpc.StatusCode.FAILED_PRECONDITION, "KV_CACHE_TOO_SMALL"),
        ),
        (InvalidField("tree", "broken"), (grpc.StatusCode.INTERNAL, "INTERNAL")),
    ],
)
async def test_client_is_told_what_ended_its_answer(connect, serve, monkeypatch, error, expected):
    monkeypatch.setattr("specmesh.orchestrator.replicas.retries.attempts.PAUSE_SECONDS", 0.001)
    verifier = Verifier()
    verifier.always = raising(error)[0]
    stub = await serve(await connect([verifier], [Drafter()]))
    assert await refusal(stub.Generate(request())) == expected


async def test_deadline_of_the_client_bounds_the_answer(connect, serve):
    verifier = Verifier()
    verifier.always = hang
    stub = await serve(await connect([verifier], [Drafter()]))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await collect(stub.Generate(request(), timeout=0.3))
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(verifier.cancelled.wait(), 10)


async def test_prompt_of_tokens_and_of_text_are_one_thing(connect, serve):
    stub = await serve(await connect([Verifier()], [Drafter()]))
    of_text = await collect(stub.Generate(request()))
    of_tokens = pb.GenerateRequest(
        tokens={"ids": TOKENIZER.encode(PROMPT).ids},
        sampling=GREEDY,
        stopping={"max_tokens": NUM_TOKENS},
    )
    assert (await collect(stub.Generate(of_tokens))).tokens == of_text.tokens


async def test_models_are_listed_with_what_is_there(connect, serve):
    stub = await serve(await connect([Verifier(), Verifier()], [Drafter("small")]))
    (model,) = (await stub.ListModels(served_model_pb2.ListModelsRequest())).models
    assert (model.target.name, model.num_verifiers) == ("toy", 2)
    assert [drafter.name for drafter in model.drafters] == ["small"]
    assert [each.name for each in model.strategies] == list(STRATEGIES)
    # Nothing but a confidence service is missing.
    assert [each.name for each in model.strategies if not each.available] == ["filter"]
    assert [each.name for each in model.strategies if not each.lossless] == ["filter"]
    dsi = next(each for each in model.strategies if each.name == "dsi")
    assert list(dsi.options) == ["lookahead", "width"]


async def test_strategies_that_need_a_drafter_are_not_available_without_one(connect, serve):
    stub = await serve(await connect([Verifier()], []))
    (model,) = (await stub.ListModels(served_model_pb2.ListModelsRequest())).models
    available = [each.name for each in model.strategies if each.available]
    assert available == ["autoregressive", "heads", "heads-and-drafter", "auto"]


@pytest.mark.parametrize("field", ["page_size", "page_token"])
async def test_a_page_that_there_is_not_is_refused(connect, serve, field):
    stub = await serve(await connect([Verifier()], [Drafter()]))
    pages = {"page_size": {"page_size": -1}, "page_token": {"page_token": "elsewhere"}}
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.ListModels(served_model_pb2.ListModelsRequest(**pages[field]))
    refused = invalid_field(raised.value)
    assert refused is not None
    assert refused.field == field


async def test_the_only_page_says_that_it_is_the_last(connect, serve):
    stub = await serve(await connect([Verifier()], [Drafter()]))
    listed = await stub.ListModels(served_model_pb2.ListModelsRequest(page_size=1))
    assert (len(listed.models), listed.next_page_token) == (1, "")


async def test_defaults_are_listed(connect, serve):
    stub = await serve(await connect([Verifier()], [Drafter()]))
    (model,) = (await stub.ListModels(served_model_pb2.ListModelsRequest())).models
    assert (model.default_strategy, model.default_lookahead) == ("speculative", 4)
