"""The synchronous client across a fork: usable on both sides, and no call is left of it."""

import pytest
from tests.client.programs import MESH, run_program


def test_a_fork_leaves_a_used_client_usable_on_both_sides_and_an_answer_going_on():
    told = run_program(FORKED)
    assert sorted(told) == [
        "child: a second answer",
        "child: a stream can be read only in the process that created it",
        "child: exit 0",
        "parent: a first answer",
        "parent: one two three four, resumed",
        "parent: yet another",
    ]


def test_a_fork_while_a_thread_waits_for_an_answer_leaves_the_client_usable_on_both_sides():
    """Its first call broke: what is left of it would keep gRPC alive as well."""
    assert run_program(FORKED_WAITING) == [
        "child: well met",
        "child: exit 0",
        "parent: well met",
    ]


@pytest.mark.parametrize("interceptors", ["", "Passing()"])
def test_before_a_fork_no_call_is_left_also_with_interceptors(interceptors):
    """What is left of one would keep gRPC alive, and then it can't be used in the child."""
    assert run_program(LEFT.replace("INTERCEPTORS", interceptors)) == ["left: []", "the rest: 4999"]


def test_before_a_fork_no_call_is_left_of_an_answer_that_pauses_after_a_break():
    assert run_program(PAUSING) == ["left: []", "well met"]


def test_before_a_fork_no_call_is_left_by_errors_that_somebody_keeps():
    kept = ["Unavailable", "InvalidRequest", "Unavailable", "DeadlineExceeded", "Cancelled"]
    assert run_program(KEPT) == [f"kept: {' '.join(kept)}", "left: []"]


LEFT = """
import gc, grpc
from specmesh.client.background import background
from specmesh.client.background import Background
from specmesh.client.testing import FakeMesh

class Passing(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, go_on, details, request):
        return await go_on(details, request)

with FakeMesh() as mesh, Client(mesh.address, interceptors=[INTERCEPTORS]) as client:
    mesh.answer(*map(str, range(5000)))
    chunks = iter(client.generate("count"))
    next(chunks)
    background.before_fork()
    left = [each for each in gc.get_objects() if isinstance(each, grpc.aio.Call)]
    background.after_fork_in_parent()
    print("left:", left)
    print("the rest:", len(list(chunks)))
"""

PAUSING = """
import gc, grpc
from specmesh.client import Hooks
from specmesh.client.background import background
from specmesh.client.testing import FakeMesh

pauses = threading.Event()
hooks = Hooks(on_retry=lambda _: pauses.set())
with FakeMesh() as mesh, Client(mesh.address, hooks=hooks) as client:
    mesh.fail(grpc.StatusCode.UNAVAILABLE, retry_after_s=2)
    mesh.answer("well met")
    reading = threading.Thread(target=lambda: print(client.complete("hello").text))
    reading.start()
    pauses.wait()
    background.before_fork()
    left = [each for each in gc.get_objects() if isinstance(each, grpc.aio.Call)]
    background.after_fork_in_parent()
    print("left:", left)
    reading.join()
"""

KEPT = """
import gc, grpc
from specmesh.client import Hooks, SpecmeshError, Timeouts, testing
from specmesh.client.background import background

asked = threading.Event()
def silent(self, request, context):
    over = threading.Event()
    context.add_callback(over.set)
    asked.set()
    over.wait(20)
    return iter(())
testing._Tokenizer.Tokenize = testing._FakeGeneration.Score = silent

class Silent(testing._FakeGeneration):
    def Generate(self, request, context):
        return silent(self, request, context) if request.text == "silent" else super().Generate(
            request, context)
testing._FakeGeneration = Silent

kept = []
def keep(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except SpecmeshError as error:
        kept.append(error)

hooks = Hooks(on_retry=lambda broken: kept.append(broken.error))
with testing.FakeMesh() as mesh, Client(mesh.address, hooks=hooks) as client:
    mesh.fail(grpc.StatusCode.UNAVAILABLE)
    mesh.fail(grpc.StatusCode.INVALID_ARGUMENT)
    kept += client.generate_many(["hello"])
    impatient = Client(mesh.address, timeouts=Timeouts(start_s=0.2), max_retries=0)
    keep(impatient.complete, "silent")
    keep(impatient.score, "hello", timeout_s=0.2)
    asked.clear()
    waiting = threading.Thread(target=keep, args=(client.tokenize, "hello"))
    waiting.start()
    asked.wait()
    client.close()
    waiting.join()
    print("kept:", *(type(each).__name__ for each in kept))
    background.before_fork()
    print("left:", [each for each in gc.get_objects() if isinstance(each, grpc.aio.Call)])
    background.after_fork_in_parent()
"""

FORKED = f"""
mesh = subprocess.Popen(
    [sys.executable, "-c", {MESH!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
client = Client(mesh.stdout.readline().strip())
print("parent:", client.complete("hello").text, flush=True)
stream = client.generate("count")
chunks = iter(stream)
next(chunks)
child = os.fork()
if not child:
    print("child:", client.complete("hello").text, flush=True)
    try:
        next(iter(stream))
    except RuntimeError as error:
        print("child:", error, flush=True)
    sys.stdout.flush()
    sys.exit(0)
_, status = os.waitpid(child, 0)
print("child: exit", os.waitstatus_to_exitcode(status), flush=True)
for _ in chunks:
    pass
resumed = ", resumed" if stream.result.num_resumes else ""
print("parent:", stream.text + resumed, flush=True)
print("parent:", client.complete("hello").text, flush=True)
mesh.stdin.close()
mesh.wait()
"""

# The first call of a mesh's answer breaks; its second waits until it is cancelled.
WAITED_FOR = """
import grpc, sys, threading
from specmesh.client import testing

class Slow(testing._FakeGeneration):
    num_calls = 0
    def Generate(self, request, context):
        Slow.num_calls += 1
        if Slow.num_calls == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
        if Slow.num_calls == 2:
            cancelled = threading.Event()
            context.add_callback(cancelled.set)
            print("waited for", flush=True)
            cancelled.wait(30)
            return
        yield from super().Generate(request, context)

testing._FakeGeneration = Slow
with testing.FakeMesh() as mesh:
    for _ in range(2):
        mesh.answer("well met")
    print(mesh.address, flush=True)
    sys.stdin.read()
"""

FORKED_WAITING = f"""
mesh = subprocess.Popen(
    [sys.executable, "-c", {WAITED_FOR!r}],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
)
client = Client(mesh.stdout.readline().strip())
texts = []
reading = threading.Thread(target=lambda: texts.append(client.complete("hello").text), daemon=True)
reading.start()
mesh.stdout.readline()
child = os.fork()
if not child:
    signal.alarm(20)
    print("child:", client.complete("hello").text, flush=True)
    os._exit(0)
_, status = os.waitpid(child, 0)
print("child: exit", os.waitstatus_to_exitcode(status), flush=True)
reading.join()
print("parent:", *texts, flush=True)
mesh.stdin.close()
mesh.wait()
"""
