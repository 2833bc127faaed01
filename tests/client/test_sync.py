"""The synchronous client: the same answers, from any thread."""

import asyncio
import gc
import inspect
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count

import grpc
import pytest
from tests.client.programs import MESH, ended_program, run_program

from specmesh.client import (
    AsyncClient,
    Cancelled,
    Client,
    ClientOptions,
    Hooks,
    InvalidRequest,
    SpecmeshError,
    testing,
)
from specmesh.client.background import Background, background
from specmesh.client.testing import FakeMesh

WORDS = ("one ", "two ", "three ", "four")


@pytest.fixture
def mesh():
    with FakeMesh() as mesh:
        yield mesh


@pytest.fixture
def client(mesh):
    with Client(mesh.address) as client:
        yield client


def test_it_has_the_calls_and_the_keywords_of_the_asynchronous_one():
    def public(kind):
        return {name for name in dir(kind) if not name.startswith("_")}

    in_the_loop = {"aclose", "suspend", "reopen"}
    assert public(Client) == public(AsyncClient) - in_the_loop | {"close"}
    keywords = set(inspect.signature(AsyncClient).parameters) - {"targets"}
    assert set(ClientOptions.__annotations__) == keywords


def test_chunks_come_as_they_are_said_and_properties_tell_of_them_at_any_time(mesh, client):
    mesh.answer(*WORDS)
    stream = client.generate("count")
    assert (stream.session_id, stream.seed, stream.stats) == ("", None, None)
    assert stream.num_prompt_tokens is None
    for number, chunk in enumerate(stream):
        assert chunk.text == WORDS[number]
        assert stream.text == "".join(WORDS[: number + 1])
        assert (stream.session_id, stream.seed) == ("fake-1", 7)
        assert stream.num_prompt_tokens == 1
        assert stream.stats.num_output_tokens == number + 1
    assert stream.stats.num_output_tokens == len(WORDS)
    assert stream.result.text == "".join(WORDS)


def test_a_broken_answer_goes_on(mesh, client):
    mesh.answer(*WORDS, breaks_after=(1, 3))
    result = client.complete("count")
    assert (result.text, result.num_resumes) == ("".join(WORDS), 2)


def test_an_error_leaves_what_was_said(mesh):
    mesh.answer(*WORDS, breaks_after=2)
    with Client(mesh.address, max_resumes=0) as client:
        stream = client.generate("count")
        with pytest.raises(SpecmeshError, match="breaks"):
            stream.complete()
    assert (stream.text, stream.token_ids) == ("one two ", (0, 1))
    assert stream.stats.num_output_tokens == 2


def test_leaving_the_loop_cancels_the_answer_and_ends_its_hooks(mesh):
    ended = []
    mesh.answer(*WORDS)
    with Client(mesh.address, hooks=Hooks(on_finish=ended.append)) as client:
        for _ in client.generate("count"):
            break
    assert [(each.session_id, each.result, each.error) for each in ended] == [
        ("fake-1", None, None)
    ]


def test_a_stream_that_another_thread_closes_is_over_for_its_reader(mesh, client):
    mesh.answer(*WORDS)
    stream = client.generate("count")
    chunks = iter(stream)
    next(chunks)
    with ThreadPoolExecutor(1) as another:
        another.submit(stream.close).result()
    with pytest.raises(Cancelled):
        next(chunks)
    assert stream.text == "one "
    assert len(mesh.requests) == 1


def test_a_reader_that_waits_while_another_thread_closes_is_told(monkeypatch):
    waiting, over = threading.Event(), threading.Event()

    class Silent(testing._FakeGeneration):
        def Generate(self, request, context):  # noqa: N802
            context.add_callback(over.set)
            waiting.set()
            over.wait(20)
            yield from ()

    monkeypatch.setattr(testing, "_FakeGeneration", Silent)
    with FakeMesh() as mesh, Client(mesh.address) as client, ThreadPoolExecutor(1) as another:
        stream = client.generate("count")
        reading = another.submit(stream.complete)
        assert waiting.wait(20)
        stream.close()
        with pytest.raises(Cancelled):
            reading.result(20)


def test_a_stream_that_is_collected_as_garbage_on_the_loops_thread_is_cancelled(mesh, monkeypatch):
    ended, unraisable = [], []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    mesh.answer(*WORDS)
    with Client(mesh.address, hooks=Hooks(on_finish=ended.append)) as client:
        gc.disable()
        try:
            cycle = [iter(client.generate("count"))]
            next(cycle[0])
            cycle.append(cycle)
            del cycle
            background.run(collect_garbage())
        finally:
            gc.enable()
    assert [(each.session_id, each.error) for each in ended] == [("fake-1", None)]
    assert unraisable == []


async def collect_garbage():
    gc.collect()


@pytest.mark.parametrize(
    "left",
    [
        "read_and_fail(iter(client.generate('count')))",
        "kept = iter(client.generate('count')); read_and_fail(kept)",
        "kept = held(); read_and_fail(kept)",
    ],
)
def test_a_process_ends_whatever_it_has_left_open(left):
    """Streams and a client in a traceback or a global, which are collected last of all."""
    status, printed, errors = ended_program(LEFT_OPEN.replace("LEFT", left))
    assert (status, printed) == (1, "")
    assert errors.startswith("Traceback")
    assert errors.endswith("ValueError: the end\n")


def test_a_call_at_the_end_of_a_process_is_refused_at_once():
    status, printed, errors = ended_program(AT_EXIT)
    assert (status, errors) == (0, "")
    assert printed == "the process is ending, so its clients can't be used any more\nclosed\n"


def test_many_threads_share_one_client(mesh, client):
    for number in range(20):
        mesh.answer(f"answer {number}")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: client.complete(f"prompt {n}").text, range(20)))
    assert sorted(answers) == sorted(f"answer {number}" for number in range(20))
    loops = [thread for thread in threading.enumerate() if thread.name == "specmesh-client"]
    assert len(loops) == 1


def test_the_prompts_of_a_batch_are_read_in_the_callers_thread_and_may_come_of_calls(mesh, client):
    threads = []

    def prompts():
        for model in client.list_models():
            threads.append(threading.current_thread())
            yield model.target.name

    assert len(client.generate_many(prompts())) == 1
    assert threads == [threading.current_thread()]
    with pytest.raises(TypeError, match="prompts: expected a sequence of prompts, got one string"):
        client.generate_many("hello")


def test_the_other_calls_are_there_as_well(mesh, client):
    assert client.detokenize(client.tokenize("née")) == "née"
    assert client.token_strings(client.tokenize("né")) == ("n", "Ã", "©")
    chat = [{"role": "user", "content": "hi"}]
    assert client.apply_chat_template(chat).text == "user: hi\nassistant:"
    assert [each.target.name for each in client.list_models()] == ["fake"]
    mesh.fail(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", field="text")
    with pytest.raises(InvalidRequest) as caught:
        client.complete("")
    assert [each.field for each in caught.value.field_violations] == ["text"]


def test_the_callers_event_loop_and_the_clients_do_not_meet(mesh, client):
    async def blocking_call_in_a_loop():
        return client.complete("count").text

    mesh.answer(*WORDS)
    assert asyncio.run(blocking_call_in_a_loop()) == "".join(WORDS)


def test_an_interrupt_cancels_the_call_that_is_waited_for():
    """A real SIGINT, in a process of its own, while the mesh is silent."""
    ended = run_program(INTERRUPTED)
    assert ended == ["waiting", "interrupted", "cancelled at the mesh", "answered again"]


def test_an_interrupt_that_does_not_wake_the_waiting_thread_is_noticed_soon():
    """Another thread gets the signal, as one that comes a moment before the wait."""
    blocked = "    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n    try:\n"
    ended = run_program(INTERRUPTED.replace("    try:\n", blocked, 1))
    assert ended == ["waiting", "interrupted", "cancelled at the mesh", "answered again"]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_an_interrupt_at_any_line_of_a_call_leaves_nothing_that_runs():
    """Also right after the call was handed over, when nothing waits for it yet."""
    begun, over = [], []

    async def work(number):
        begun.append(number)
        try:
            await asyncio.sleep(0.2)
        finally:
            over.append(number)

    background = Background()
    background.run(asyncio.sleep(0))
    for number in count():
        with suppress(KeyboardInterrupt), interrupted_at_line(number):
            background.run(work(number))
            break
        background.run(asyncio.sleep(0.001))
        assert begun == over
    background.stop()
    assert number > 10
    assert len(begun) > 5


INTERRUPTIBLE = {
    Background.run.__code__,
    *(
        getattr(asyncio.BaseEventLoop, name).__code__
        for name in ("call_soon_threadsafe", "_call_soon", "_check_closed")
    ),
    asyncio.SelectorEventLoop._write_to_self.__code__,
}


@contextmanager
def interrupted_at_line(number):
    """An interrupt comes at that line of ``run``, and of what hands its call over, counted from
    here. Not while a lock is taken or given back, where a signal's handler doesn't run either."""
    lines = count()

    def trace(frame, event, argument):
        if event == "line" and next(lines) == number:
            raise KeyboardInterrupt
        return trace if frame.f_code in INTERRUPTIBLE else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


INTERRUPTED = """
import threading
from specmesh.client import testing

silent, gone = threading.Event(), threading.Event()
class Silent(testing._FakeGeneration):
    def Generate(self, request, context):
        if silent.is_set():
            yield from super().Generate(request, context)
            return
        silent.set()
        context.add_callback(gone.set)
        print("waiting", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
        if not gone.wait(5):
            print("still waited for", flush=True)
testing._FakeGeneration = Silent
with testing.FakeMesh() as mesh, Client(mesh.address) as client:
    try:
        client.complete("hello")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    if gone.wait(20):
        print("cancelled at the mesh", flush=True)
    mesh.answer("answered again")
    print(client.complete("hello").text)
"""

LEFT_OPEN = f"""
mesh = subprocess.Popen(
    [sys.executable, "-c", {MESH!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
client = Client(mesh.stdout.readline().strip())

def held():
    with client:
        yield client.complete("hello")

def read_and_fail(chunks):
    next(chunks)
    raise ValueError("the end")

LEFT
"""

AT_EXIT = f"""
import atexit
from specmesh.client.background import background

def ask():
    try:
        client.complete("hello")
    except RuntimeError as error:
        print(error)
    client.close()
    print("closed")

# As if registered before the client was imported: the last to register is called first.
atexit.unregister(background.stop)
atexit.register(ask)
atexit.register(background.stop)
mesh = subprocess.Popen(
    [sys.executable, "-c", {MESH!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
client = Client(mesh.stdout.readline().strip())
client.complete("hello")
"""
