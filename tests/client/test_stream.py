"""An answer over a real socket: chunks, result, cancellation, deadlines."""

import asyncio
import os
import signal
import sys

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from tests.client.conftest import (
    TOKENS,
    FakeOrchestrator,
    breaks_after,
    chunks,
    finished,
    refuses,
    rest_of_answer,
    started,
    whole_answer,
)

from specmesh.cli.local import launcher
from specmesh.client import (
    AsyncClient,
    Chunk,
    DeadlineExceeded,
    Filter,
    FinishReason,
    Internal,
    MessageDelta,
    NotFound,
    SessionTaken,
    Strategy,
    Timeouts,
    Unavailable,
)
from specmesh.v1 import events_pb2, sampling_pb2, speculation_pb2
from specmesh.v1 import generation_pb2 as pb

BOTH_WAYS = True

TEXT = "".join(f"{token} " for token in TOKENS)


async def endless(_):
    yield started()
    yield next(iter(chunks(0, 2)))
    await asyncio.Event().wait()


async def test_chunks_come_in_order_and_the_result_sums_them_up(serve):
    fake = await serve(FakeOrchestrator([whole_answer]))
    async with AsyncClient(fake.address) as client:
        stream = client.generate("hello")
        got = [chunk async for chunk in stream]
    assert got[:2] == [
        Chunk(0, (100, 101), "100 101 ", deltas=(MessageDelta("100 101 "),)),
        Chunk(2, (102, 103), "102 103 ", deltas=(MessageDelta("102 103 "),)),
    ]
    result = stream.result
    assert (result.text, result.token_ids) == (TEXT, TOKENS)
    assert result.finish_reason is FinishReason.LENGTH
    assert (result.session_id, result.epoch, result.seed) == ("s-1", 1, 7)
    assert (result.model, result.strategy, result.num_resumes) == ("toy", "speculative", 0)
    assert result.stats.acceptance == 0.8


async def test_text_held_back_until_the_end_is_part_of_the_answer(serve):
    async def script(_):
        yield started()
        yield finished(text="tail")

    fake = await serve(FakeOrchestrator([script]))
    async with AsyncClient(fake.address) as client:
        stream = client.generate("hello")
        assert [chunk async for chunk in stream] == [
            Chunk(0, (), "tail", resumable=True, deltas=(MessageDelta("tail"),))
        ]
        assert stream.result.text == "tail"


async def test_a_response_may_be_longer_than_grpc_takes_by_itself(serve):
    async def script(_):
        yield started()
        yield finished(text="x" * 5 * 2**20)

    fake = await serve(FakeOrchestrator([script]))
    async with AsyncClient(fake.address) as client:
        assert len((await client.generate("hello")).text) == 5 * 2**20


async def test_options_reach_the_server_and_unset_ones_stay_unset(serve):
    fake = await serve(FakeOrchestrator([whole_answer, whole_answer]))
    async with AsyncClient(fake.address) as client:
        await client.generate("hello")
        await client.generate(
            [1, 2],
            temperature=0,
            top_k=5,
            top_p=0.5,
            seed=9,
            acceptance_mode="rejection",
            max_tokens=3,
            stop_token_ids=[4],
            stop_strings=["\n"],
            ignore_end_of_text=True,
            strategy="dsi",
            lookahead=6,
            model="toy",
        )
    bare, full = fake.requests
    assert bare.request_id
    assert bare == pb.GenerateRequest(
        request_id=bare.request_id,
        text="hello",
        sampling=sampling_pb2.SamplingParameters(),
        stopping=sampling_pb2.StoppingCriteria(),
        speculation=speculation_pb2.SpeculationOptions(),
        epoch=1,
    )
    assert list(full.tokens.ids) == [1, 2]
    assert full.sampling == sampling_pb2.SamplingParameters(
        temperature=0,
        top_k=5,
        top_p=0.5,
        seed=9,
        acceptance_mode=sampling_pb2.ACCEPTANCE_MODE_REJECTION,
    )
    assert full.stopping == sampling_pb2.StoppingCriteria(
        max_tokens=3, stop_token_ids=[4], stop_strings=["\n"], ignore_end_of_text=True
    )
    assert full.speculation == speculation_pb2.SpeculationOptions(strategy="dsi", lookahead=6)
    assert full.model == "toy"


async def test_values_no_request_can_hold_are_refused_before_any_call():
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(ValueError, match="banana"):
            client.generate("hello", acceptance_mode="banana")
        for options in (
            *({"max_tokens": -1}, {"seed": -1}, {"top_k": 2**40}, {"lookahead": -1}),
            *({"num_top_logprobs": -1}, {"stop_token_ids": [-1]}, {"timeout_s": 0}),
            *({"timeout_s": float("nan")}, {"timeout_s": float("inf")}),
            *({"chunk_interval_s": -0.1}, {"chunk_interval_s": 0.51}),
        ):
            with pytest.raises(ValueError, match=next(iter(options))):
                client.generate("hello", **options)
        for options in (
            *({"temperature": "warm"}, {"model": 1}, {"predictor": 1}, {"stop_strings": [1]}),
            *({"timeout_s": "soon"}, {"strategy": 2}, {"chunk_interval_s": "often"}),
        ):
            with pytest.raises(TypeError, match=next(iter(options))):
                client.generate("hello", **options)
        with pytest.raises(TypeError, match="threshold"):
            client.generate("hello", filter=Filter(threshold="high"))
        with pytest.raises(TypeError, match="stop_strings: expected a sequence of strings"):
            client.generate("hello", stop_strings="end")
        with pytest.raises(TypeError, match="did you mean 'lookahead'"):
            client.generate("hello", lookahed=1)
    with pytest.raises(ValueError, match="is a URL"):
        AsyncClient("http://127.0.0.1")


async def test_a_stream_is_read_once_and_has_no_result_before_its_end(serve):
    fake = await serve(FakeOrchestrator([whole_answer]))
    async with AsyncClient(fake.address) as client:
        stream = client.generate("hello")
        with pytest.raises(RuntimeError, match="not ended"):
            _ = stream.result
        await stream
        with pytest.raises(RuntimeError, match="once"):
            await anext(aiter(stream))


async def test_leaving_the_loop_cancels_the_call_on_the_server(serve):
    fake = await serve(FakeOrchestrator([endless]))
    async with AsyncClient(fake.address) as client:
        stream = client.generate("hello")
        async for _ in stream:
            break
        async with asyncio.timeout(5):
            await fake.cancelled.wait()


async def test_cancelling_the_reader_cancels_the_call_on_the_server(serve):
    fake = await serve(FakeOrchestrator([endless]))
    async with AsyncClient(fake.address) as client:
        first = asyncio.Event()

        async def read():
            async for _ in client.generate("hello"):
                first.set()

        reader = asyncio.create_task(read())
        async with asyncio.timeout(5):
            await first.wait()
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
            await fake.cancelled.wait()


async def test_the_end_of_a_with_block_cancels_the_call_on_the_server(serve):
    fake = await serve(FakeOrchestrator([endless]))
    async with AsyncClient(fake.address) as client:
        async with client.generate("hello") as stream:
            iterator = aiter(stream)
            await anext(iterator)
        async with asyncio.timeout(5):
            await fake.cancelled.wait()


async def test_an_answer_that_is_read_to_its_end_is_not_cancelled_on_the_server(serve):
    ended = asyncio.Event()

    async def slow_to_end(context):
        async for event in rest_of_answer(0, epoch=1)(context):
            yield event
        await asyncio.sleep(0.05)
        ended.set()

    fake = await serve(FakeOrchestrator([slow_to_end]))
    async with AsyncClient(fake.address) as client:
        assert (await client.generate("hello")).text == TEXT
    assert ended.is_set()
    assert not fake.cancelled.is_set()


async def test_a_call_that_does_not_end_after_its_answer_is_cancelled(serve):
    async def endless_end(context):
        async for event in rest_of_answer(0, epoch=1)(context):
            yield event
        await asyncio.Event().wait()

    fake = await serve(FakeOrchestrator([endless_end]))
    async with AsyncClient(fake.address) as client, asyncio.timeout(5):
        assert (await client.generate("hello")).text == TEXT
        await fake.cancelled.wait()


async def test_the_deadline_ends_the_call_on_both_sides(serve):
    fake = await serve(FakeOrchestrator([endless]))
    async with AsyncClient(fake.address) as client:
        with pytest.raises(DeadlineExceeded):
            await client.generate("hello", timeout_s=0.3)
        async with asyncio.timeout(5):
            await fake.cancelled.wait()


async def test_a_broken_stream_is_resumed_with_nothing_twice_and_nothing_lost(serve):
    first = await serve(FakeOrchestrator([breaks_after(4)]))
    second = await serve(FakeOrchestrator(resume=[rest_of_answer(4)]))
    async with AsyncClient(first.address, second.address) as client:
        stream = client.generate("hello")
        got = [token async for chunk in stream for token in chunk.token_ids]
    assert got == list(TOKENS)
    assert stream.result.text == TEXT
    assert (stream.result.num_resumes, stream.result.epoch) == (1, 2)
    received = pb.Received(token_ids=TOKENS[:4])
    assert second.resumes == [
        pb.ResumeRequest(session_id="s-1", resume_token=b"secret", epoch=2, received=received)
    ]


async def test_a_stream_survives_several_breaks_and_targets_that_are_down(serve):
    async def breaks_again(context):
        yield started(2)
        for event in chunks(4, 8):
            yield event
        await context.abort(grpc.StatusCode.UNAVAILABLE, "gone too")

    unavailable = refuses(grpc.StatusCode.UNAVAILABLE)
    first = await serve(FakeOrchestrator([breaks_after(4)], [unavailable]))
    second = await serve(FakeOrchestrator(resume=[breaks_again, rest_of_answer(8, epoch=3)]))
    down = "127.0.0.1:1"
    async with AsyncClient(first.address, second.address, down) as client:
        stream = client.generate("hello")
        assert (await stream).text == TEXT
    assert stream.result.num_resumes == 2
    resumes = [second.resumes[0], *first.resumes, second.resumes[1]]
    assert [len(resume.received.token_ids) for resume in resumes] == [4, 8, 8]
    # Each call has an epoch of its own, also those that found nobody.
    epochs = [resume.epoch for resume in resumes]
    assert epochs == sorted(set(epochs))


async def test_an_orchestrator_killed_in_mid_stream_is_survived(serve, tmp_path):
    command = (sys.executable, "-c", DYING_ORCHESTRATOR)
    killed = await asyncio.create_subprocess_exec(
        # The launcher ends it with this process, should the test fail before it does.
        *(sys.executable, "-IS", launcher.__file__, str(os.getpid()), "", "0"),
        *command,
        stdout=asyncio.subprocess.PIPE,
    )
    address = (await killed.stdout.readline()).decode().strip()
    heir = await serve(FakeOrchestrator(resume=[rest_of_answer(2)]))
    async with AsyncClient(address, heir.address) as client:
        stream = client.generate("hello")
        got = []
        async for chunk in stream:
            got += chunk.token_ids
            if killed.returncode is None:
                killed.send_signal(signal.SIGKILL)
                await killed.wait()
    assert tuple(got) == TOKENS
    assert stream.result.num_resumes == 1


DYING_ORCHESTRATOR = """
import asyncio, grpc
from specmesh.v1 import events_pb2
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1 import generation_pb2_grpc as rpc

class Servicer(rpc.GenerationServiceServicer):
    async def Generate(self, request, context):
        event = events_pb2.GenerationStarted(session_id="s-1", epoch=1, resumable=True)
        yield pb.GenerateResponse(event=events_pb2.GenerationEvent(started=event))
        event = events_pb2.GenerationChunk(token_ids=[100, 101], text="100 101 ")
        yield pb.GenerateResponse(event=events_pb2.GenerationEvent(chunk=event))
        await asyncio.Event().wait()

async def main():
    server = grpc.aio.server()
    rpc.add_GenerationServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()

asyncio.run(main())
"""


async def test_a_silent_stream_counts_as_broken(serve):
    silent = await serve(FakeOrchestrator([endless]))
    heir = await serve(FakeOrchestrator(resume=[rest_of_answer(2)]))
    timeouts = Timeouts(idle_s=0.3)
    async with AsyncClient(silent.address, heir.address, timeouts=timeouts) as client:
        assert (await client.generate("hello")).text == TEXT


async def test_a_silent_stream_that_promised_heartbeats_is_left_early(serve):
    async def frozen(_):
        yield started(heartbeat_ms=50)
        yield next(iter(chunks(0, 2)))
        await asyncio.Event().wait()

    silent = await serve(FakeOrchestrator([frozen]))
    heir = await serve(FakeOrchestrator(resume=[rest_of_answer(2)]))
    async with AsyncClient(silent.address, heir.address) as client, asyncio.timeout(5):
        assert (await client.generate("hello")).text == TEXT


async def test_heartbeats_keep_a_slow_stream_and_are_not_told_to_the_reader(serve):
    async def slow(_):
        yield started(heartbeat_ms=200)  # of which four may be missing
        for _ in range(50):
            await asyncio.sleep(0.02)
            yield events_pb2.GenerationEvent(heartbeat=events_pb2.Heartbeat())
        for event in chunks(0, len(TOKENS)):
            yield event
        yield finished()

    fake = await serve(FakeOrchestrator([slow]))
    async with AsyncClient(fake.address) as client:
        stream = client.generate("hello")
        assert (await stream).text == TEXT
    assert stream.result.num_resumes == 0


async def test_heartbeats_keep_a_call_that_waits_to_carry_the_answer_on(serve):
    async def waits(context):
        for _ in range(50):
            await asyncio.sleep(0.02)
            yield events_pb2.GenerationEvent(heartbeat=events_pb2.Heartbeat())
        async for event in rest_of_answer(4)(context):
            yield event

    fake = await serve(FakeOrchestrator([breaks_after(4, heartbeat_ms=50)], [waits]))
    async with AsyncClient(fake.address) as client:
        assert (await client.generate("hello")).text == TEXT
    assert len(fake.resumes) == 1


async def test_heartbeats_keep_a_call_that_waits_for_its_admission(serve):
    async def waits(context):
        for _ in range(50):
            await asyncio.sleep(0.02)
            yield events_pb2.GenerationEvent(heartbeat=events_pb2.Heartbeat())
        async for event in rest_of_answer(0, epoch=1)(context):
            yield event

    fake = await serve(FakeOrchestrator([waits]))
    async with AsyncClient(fake.address, timeouts=Timeouts(start_s=0.5)) as client:
        assert (await client.generate("hello")).text == TEXT
    assert [each["specmesh-heartbeats"] for each in fake.metadata] == ["early"]


@pytest.mark.parametrize("reason", ["NO_STORE", "STORE_UNAVAILABLE", "SESSION_NOT_FOUND"])
async def test_without_its_session_an_answer_goes_on_from_what_was_received(serve, reason):
    code = grpc.StatusCode.NOT_FOUND if "NOT" in reason else grpc.StatusCode.UNAVAILABLE
    fake = await serve(
        FakeOrchestrator(
            [breaks_after(4), rest_of_answer(4, epoch=3)], [refuses(code, reason=reason)]
        )
    )
    async with AsyncClient(fake.address) as client:
        stream = client.generate("hello", max_tokens=12)
        assert (await stream).text == TEXT
    again = fake.requests[1]
    assert again.received == pb.Received(token_ids=TOKENS[:4])
    assert (again.epoch, again.sampling.seed, again.model_fingerprint) == (3, 7, "w-1")
    assert (again.text, again.stopping.max_tokens) == ("hello", 12)
    assert again.speculation.strategy == "speculative"
    assert stream.result.num_resumes == 1


async def test_without_the_store_an_answer_goes_on_at_once_from_what_was_received(serve):
    fake = await serve(FakeOrchestrator([breaks_after(4, resumable=False), rest_of_answer(4)]))
    async with AsyncClient(fake.address) as client:
        assert (await client.generate("hello")).text == TEXT
    assert fake.resumes == []
    assert fake.requests[1].received == pb.Received(token_ids=TOKENS[:4])


async def test_a_session_that_is_stored_late_is_resumed(serve):
    async def stored_late(context):
        yield started(resumable=False)
        for event in chunks(0, 4):
            event.chunk.resumable = True
            yield event
        await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    fake = await serve(FakeOrchestrator([stored_late], [rest_of_answer(4)]))
    async with AsyncClient(fake.address) as client:
        assert (await client.generate("hello")).text == TEXT
    assert len(fake.resumes) == 1


async def test_what_was_not_checked_is_part_of_what_was_received(serve):
    async def filtered(context):
        yield started()
        for event in chunks(0, 4):
            event.chunk.kinds[:] = [
                events_pb2.TOKEN_KIND_ACCEPTED,
                events_pb2.TOKEN_KIND_UNCHECKED,
            ]
            yield event
        await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    fake = await serve(FakeOrchestrator([filtered], [rest_of_answer(4)]))
    async with AsyncClient(fake.address) as client:
        await client.generate("hello")
    assert fake.resumes[0].received == pb.Received(token_ids=TOKENS[:4], unchecked=[1, 3])


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED]
)
async def test_a_break_that_a_proxy_words_is_a_break(serve, code):
    async def breaks(context):
        yield started()
        for event in chunks(0, 4):
            yield event
        await context.abort(code, "upstream connect error or disconnect/reset")

    fake = await serve(FakeOrchestrator([breaks], [rest_of_answer(4)]))
    async with AsyncClient(fake.address) as client:
        assert (await client.generate("hello")).text == TEXT


async def test_a_reason_of_another_domain_is_the_word_of_a_proxy(serve):
    theirs = ErrorInfo(reason="UPSTREAM_RESET", domain="proxy.example.org")
    resets = refuses(grpc.StatusCode.INTERNAL, "reset", "", theirs)
    fake = await serve(FakeOrchestrator([breaks_after(4)], [resets, rest_of_answer(4)]))
    async with AsyncClient(fake.address) as client:
        assert (await client.generate("hello")).text == TEXT
    refusing = await serve(FakeOrchestrator([refuses(grpc.StatusCode.NOT_FOUND, "no", "", theirs)]))
    async with AsyncClient(refusing.address) as client:
        with pytest.raises(NotFound) as caught:
            await client.generate("hello")
    assert (caught.value.reason, caught.value.metadata) == ("", {})


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED]
)
async def test_a_break_before_the_beginning_is_tried_at_another_target(serve, code):
    """gRPC's own CANCELLED, for one, is what a server that is just going answers."""

    async def breaks(context):
        await context.abort(code, "")
        yield  # never

    broken = await serve(FakeOrchestrator([breaks]))
    fake = await serve(FakeOrchestrator([whole_answer]))
    async with AsyncClient(broken.address, fake.address) as client:
        assert (await client.generate("hello")).text == TEXT
    assert len(broken.requests) == 1


async def test_an_internal_error_is_tried_elsewhere_until_the_resumes_are_used_up(serve):
    internal = refuses(grpc.StatusCode.INTERNAL, reason="INTERNAL")
    fake = await serve(FakeOrchestrator([breaks_after(4)], [internal] * 3))
    async with AsyncClient(fake.address, max_resumes=2) as client:
        with pytest.raises(Internal):
            await client.generate("hello")
    assert len(fake.resumes) == 2


async def test_overload_within_an_answer_is_waited_out(serve):
    retry = RetryInfo(retry_delay=Duration(nanos=50_000_000))
    full = refuses(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", "OVERLOADED", retry)
    fake = await serve(FakeOrchestrator([breaks_after(4)], [full, full, rest_of_answer(4)]))
    async with AsyncClient(fake.address) as client:
        assert (await client.generate("hello")).text == TEXT
    assert len(fake.resumes) == 3


async def test_a_session_that_somebody_else_has_taken_is_final(serve):
    taken = refuses(grpc.StatusCode.ABORTED, reason="STALE_EPOCH")
    fake = await serve(FakeOrchestrator([breaks_after(4)], [taken]))
    async with AsyncClient(fake.address) as client:
        with pytest.raises(SessionTaken):
            await client.generate("hello")
    assert len(fake.resumes) == 1


async def test_an_orchestrator_that_broke_a_stream_is_passed_over_by_others(serve):
    broken = await serve(FakeOrchestrator([breaks_after(4)]))
    well = await serve(FakeOrchestrator([whole_answer] * 3, [rest_of_answer(4)]))
    async with AsyncClient(broken.address, well.address) as client:
        for _ in range(4):
            assert (await client.generate("hello")).text == TEXT
    assert len(broken.requests) == 1


@pytest.mark.parametrize("reason", ["PROMPT_CHANGED", "NEWER_SESSION", "READER_STALLED"])
async def test_an_orchestrator_that_cannot_continue_one_answer_still_gets_others(serve, reason):
    refusal = refuses(grpc.StatusCode.UNAVAILABLE, reason=reason)
    older = await serve(FakeOrchestrator([refusal] + [whole_answer] * 3))
    other = await serve(FakeOrchestrator([whole_answer] * 4))
    async with AsyncClient(older.address, other.address) as client:
        for _ in range(4):
            assert (await client.generate("hello")).text == TEXT
    assert len(older.requests) >= 2


async def test_resumes_that_bring_nothing_are_limited(serve):
    unavailable = refuses(grpc.StatusCode.UNAVAILABLE)
    fake = await serve(FakeOrchestrator([breaks_after(4)], [unavailable] * 9))
    async with AsyncClient(fake.address, max_resumes=2) as client:
        with pytest.raises(Unavailable):
            await client.generate("hello")
    assert len(fake.resumes) == 2


async def test_a_target_that_is_down_is_passed_over(serve):
    up = await serve(FakeOrchestrator([whole_answer]))
    async with AsyncClient("127.0.0.1:1", up.address) as client:
        assert (await client.generate("hello")).text == TEXT
        models = await client.list_models()
    assert [each.target.name for each in models] == ["toy", "other"]
    assert models[0].strategies == (Strategy("autoregressive", True, True, ()),)
    assert (models[0].num_verifiers, models[0].default_lookahead) == (2, 4)


async def test_nobody_there_is_unavailable_and_says_whom_it_called():
    async with AsyncClient("127.0.0.1:1", max_retries=1) as client:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
            await client.generate("hello")
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
            await client.list_models()


@pytest.mark.parametrize("missing", ["started", "finished", "tokens"])
async def test_a_stream_that_breaks_the_protocol_is_an_internal_error(serve, missing):
    async def script(_):
        if missing != "started":
            yield started()
        for event in chunks(2 if missing == "tokens" else 0, 4):
            yield event
        if missing != "finished":
            yield finished()

    fake = await serve(FakeOrchestrator([script]))
    async with AsyncClient(fake.address) as client:
        with pytest.raises(Internal):
            await client.generate("hello")
