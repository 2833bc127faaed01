"""``specmesh chat`` with a mesh that says what it is told to."""

from dataclasses import replace

import grpc
import pytest
from typer.testing import CliRunner

from specmesh.cli.answers.waiting import Waiting
from specmesh.cli.app import app
from specmesh.cli.exit_status import ExitStatus
from specmesh.client import Client, ToolCall
from specmesh.client.scripted import MODEL
from specmesh.client.testing import FakeMesh

NO_TEMPLATE_ADVICE = (
    "set one by --chat-template FILE of 'specmesh up' or of the verifiers, or use "
    "'specmesh generate'"
)


def talk(mesh, *lines, options=()):
    text = "".join(f"{line}\n" for line in lines)
    return CliRunner().invoke(app, ["chat", "-t", mesh.address, *options], input=text)


def said(request):
    return [(message.role, message.content) for message in request.chat.messages]


def test_each_message_is_sent_with_all_that_was_said_before():
    with FakeMesh() as mesh:
        mesh.answer("Hel", "lo")
        mesh.answer("Bye")
        result = talk(mesh, "Hi", "", "Go", options=["--system", "Be brief", "-o", "lookahead=3"])
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "Hello\nBye\n"
    beginning = [("system", "Be brief"), ("user", "Hi")]
    assert [said(request) for request in mesh.requests] == [
        beginning,
        [*beginning, ("assistant", "Hello"), ("user", "Go")],
    ]
    assert mesh.requests[0].speculation.lookahead == 3


def test_what_the_model_has_called_is_part_of_the_conversation():
    call = ToolCall("a", "look_up", '{"word": "x"}')
    with FakeMesh() as mesh:
        mesh.answer("Well ", call)
        mesh.answer("b")
        result = talk(mesh, "Hi", "Go")
    assert result.stdout.startswith("Well <tool_call>")
    _, answer, _ = mesh.requests[1].chat.messages
    assert (answer.role, answer.content) == ("assistant", "Well ")
    assert [(each.id, each.name, each.arguments) for each in answer.tool_calls] == [
        (call.id, call.name, call.arguments)
    ]


def test_what_is_said_is_text_alone_on_request():
    with FakeMesh() as mesh:
        mesh.answer("a")
        mesh.answer("b")
        talk(mesh, "Hi")
        talk(mesh, "Hi", options=["--content-as-text"])
    assert [request.chat.content_as_text for request in mesh.requests] == [False, True]


@pytest.mark.parametrize(
    ("breaks_after", "said"), [((), None), ((1,), "; resumed 1 time;"), ((1, 2), "2 times;")]
)
def test_statistics_say_that_an_answer_was_resumed(breaks_after, said):
    with FakeMesh() as mesh:
        mesh.answer("a", "b", "c", breaks_after=breaks_after)
        result = talk(mesh, "Hi", options=["--stats"])
    assert result.stdout == "abc\n"
    told = " ".join(result.stderr.split())
    assert said in told if said else "resumed" not in told


def test_a_reset_forgets_and_an_exit_ends():
    with FakeMesh() as mesh:
        mesh.answer("one")
        mesh.answer("two")
        result = talk(mesh, "a", "/reset", "b", "/exit", "c")
    assert result.stdout == "one\ntwo\n"
    assert said(mesh.requests[1]) == [("user", "b")]
    assert len(mesh.requests) == 2


def test_a_model_without_a_template_says_so_and_ends_where_nobody_watches():
    with FakeMesh() as mesh:
        mesh.fail(grpc.StatusCode.FAILED_PRECONDITION, "NO_CHAT_TEMPLATE", "there is none")
        result = talk(mesh, "Hi", "again")
    assert result.exit_code == 6
    assert result.stderr == f"specmesh: there is none ({NO_TEMPLATE_ADVICE}) [NO_CHAT_TEMPLATE]\n"
    assert len(mesh.requests) == 1


def test_a_model_without_a_template_is_refused_before_anything_is_typed(monkeypatch):
    listed = Client.list_models

    def without_template(client):
        return [replace(each, has_chat_template=False) for each in listed(client)]

    monkeypatch.setattr(Client, "list_models", without_template)
    with FakeMesh() as mesh:
        result = talk(mesh)
    assert result.exit_code == ExitStatus.REFUSED
    why = f"the model {MODEL!r} has no chat template ({NO_TEMPLATE_ADVICE}) [NO_CHAT_TEMPLATE]"
    assert result.stderr == f"specmesh: {why}\n"


def test_a_mesh_that_is_not_there_is_told_before_anything_is_typed():
    result = CliRunner().invoke(app, ["chat", "-t", "127.0.0.1:1"], input="")
    assert result.exit_code == ExitStatus.UNAVAILABLE
    assert result.stderr.startswith("specmesh: no orchestrator answers at 127.0.0.1:1 ")


def test_an_interrupt_ends_a_conversation_that_nobody_types(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Waiting, "came", interrupt)
    with FakeMesh() as mesh:
        mesh.answer("one ", "two")
        mesh.answer("three")
        result = talk(mesh, "Hi", "Go")
    assert (result.exit_code, result.stdout) == (ExitStatus.INTERRUPTED, "one \n")
    assert len(mesh.requests) == 1
