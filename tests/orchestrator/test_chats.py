"""Chats as prompts: what the template is given, what it makes, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest
from google.protobuf import json_format, text_format
from tests.orchestrator.answers import collect, request
from tests.orchestrator.conftest import until
from tests.orchestrator.face import CHATML, Face, face, template
from tests.orchestrator.model import CONTEXT_TOKENS, TOKENIZER, target_only, text_after
from tests.orchestrator.peers import Verifier

from specmesh.orchestrator.admission.request_limits import MAX_ARGUMENT_BYTES, MAX_MESSAGES
from specmesh.serving.codec.wire import read_sampling
from specmesh.serving.errors import error_info, invalid_field
from specmesh.v1 import chat_pb2, served_model_pb2, tokenizer_pb2

USER = 'messages { role: "user" content: "hello" } '
PREFILL = USER + 'messages { role: "assistant" content: "def f" } '
PROMPT = "<user>hello<end>\n<assistant>"


def chat(text: str) -> chat_pb2.Chat:
    return text_format.Parse(text, chat_pb2.Chat())


@pytest.fixture
def verifier() -> Verifier:
    replica = Verifier()
    replica.chat_template = template(CHATML)
    return replica


@pytest.fixture
async def clients(connect, verifier) -> AsyncIterator[Face]:
    async with face(await connect([verifier])) as both:
        yield both


async def rendered(clients: Face, text: str) -> str:
    asked = tokenizer_pb2.ApplyChatTemplateRequest(chat=chat(text))
    return str((await clients.tokenizer.ApplyChatTemplate(asked)).text)


async def refusal(clients: Face, text: str) -> grpc.aio.AioRpcError:
    """Why the chat is refused, which Generate and ApplyChatTemplate agree on."""
    found = []
    for call in (
        clients.tokenizer.ApplyChatTemplate(
            tokenizer_pb2.ApplyChatTemplateRequest(chat=chat(text))
        ),
        collect(clients.generation.Generate(request(text=None, chat=chat(text)))),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        found.append(refused.value)
    assert found[0].code() is found[1].code()
    assert found[0].details() == found[1].details()
    return found[0]


async def test_a_chat_is_answered_as_the_prompt_that_its_template_makes(clients):
    asked = request(text=None, chat=chat(USER))
    answer = await collect(clients.generation.Generate(asked))
    prompt = TOKENIZER.encode(PROMPT).ids
    tokens = target_only(prompt, 40, read_sampling(asked.sampling))
    assert answer.tokens == tokens
    assert answer.text == text_after(prompt, tokens)


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        (USER, PROMPT),
        (USER + "add_generation_prompt: true", PROMPT),
        (USER + "add_generation_prompt: false", "<user>hello<end>\n"),
        (PREFILL + "continue_final_message: true", "<user>hello<end>\n<assistant>def f"),
        ('messages { role: "user" } ', "<user><end>\n<assistant>"),
    ],
)
async def test_prompt_ends_where_the_model_is_to_go_on(clients, text, prompt):
    assert await rendered(clients, text) == prompt


async def test_a_speakers_name_reaches_the_template_where_there_is_one(connect, verifier):
    verifier.chat_template = template(
        "{% for m in messages %}{{ m.role }}{% if m.name is defined %} {{ m.name }}{% endif %}: "
        "{{ m.content }};{% endfor %}"
    )
    async with face(await connect([verifier])) as clients:
        text = await rendered(clients, USER + 'messages { role: "user" content: "a" name: "Ada" }')
    assert text == "user: hello;user Ada: a;"


async def test_arguments_reach_the_template_as_json_would(connect, verifier):
    verifier.chat_template = template(
        "{{ messages[0].content }} {{ n }} {{ x }} {{ flag }} {{ nothing is none }} "
        "{{ tools|tojson }}"
    )
    given = {"n": 3, "x": 1.5, "flag": True, "nothing": None, "tools": [{"größe": {"a": [1, "<"]}}]}
    asked = chat(USER)
    json_format.ParseDict(given, asked.template_arguments)
    async with face(await connect([verifier])) as clients:
        text = await rendered(clients, str(asked))
    assert text == 'hello 3 1.5 True True [{"größe": {"a": [1, "<"]}}]'


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "chat.messages"),
        (USER * (MAX_MESSAGES + 1), "chat.messages"),
        (f'messages {{ role: "user" content: "{"x" * 100_000}" }}', "chat.messages"),
        (USER + 'messages { content: "a" }', "chat.messages[1].role"),
        (
            PREFILL + "continue_final_message: true add_generation_prompt: true",
            "chat.continue_final_message",
        ),
        *(
            (
                USER + f'template_arguments {{ fields {{ key: "{name}" value {{ {value} }} }} }}',
                f"chat.template_arguments.{path}",
            )
            for name, value, path in [
                ("messages", "bool_value: true", "messages"),
                ("add_generation_prompt", "bool_value: true", "add_generation_prompt"),
                ("bos_token", 'string_value: "x"', "bos_token"),
                ("n", "number_value: nan", "n"),
                ("n", "number_value: -inf", "n"),
                ("n", "", "n"),
                ("n", "list_value { values { number_value: 1 } values {} }", "n[1]"),
            ]
        ),
        (
            USER + 'template_arguments { fields { key: "n" value { string_value: "'
            f'{"x" * MAX_ARGUMENT_BYTES}" }} }} }}',
            "chat.template_arguments",
        ),
    ],
)
async def test_wrong_field_is_named(connect, verifier, text, field):
    verifier.chat_template = template(CHATML, bos_token="<end>")
    async with face(await connect([verifier])) as clients:
        refused = await refusal(clients, text)
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert invalid_field(refused).field == field


async def test_chat_that_leaves_no_room_is_refused(clients):
    asked = request(text=None, chat=chat(USER))
    asked.chat.messages[0].content = "東" * CONTEXT_TOKENS
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await collect(clients.generation.Generate(asked))
    assert invalid_field(refused.value).field == "chat"


async def test_prompt_that_grows_beyond_any_context_is_refused(connect, verifier):
    verifier.chat_template = template("{% for n in range(9999) %}{{ n }}{% endfor %}")
    async with face(await connect([verifier])) as clients:
        assert invalid_field(await refusal(clients, USER)).field == "chat"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].parts.first }}", "has no attribute 'parts'"),
        ("{{ ().__class__.__bases__ }}", "is unsafe"),
        ("{{ messages.append(1) }}", "is unsafe"),
        ("{{ namespace(__len__=1) }}", "begins with an underscore"),
        ("{{ x | unheard_of }}", "No filter named 'unheard_of'"),
        ("{% break %}", "outside loop"),
        ("{{ '\\ud800' }}", "surrogates not allowed"),
        ("{{ raise_exception('\\ud800') }}", "?"),
        ("{{ raise_exception('x' * 99999) }}", "xxx"),
    ],
)
async def test_template_refuses_in_its_own_words(connect, verifier, source, said):
    verifier.chat_template = template(source)
    async with face(await connect([verifier])) as clients:
        refused = await refusal(clients, USER)
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_info(refused).reason == "CHAT_REFUSED"
    assert said in refused.details()


async def test_last_message_is_continued_where_it_is_shown_last(connect, verifier):
    verifier.chat_template = template(
        "{{ messages[0].content }}: "
        "{% set m = messages[-1].content %}{{ m }}, {{ m|trim }}, {{ m }}."
    )
    async with face(await connect([verifier])) as clients:
        text = await rendered(clients, PREFILL + "continue_final_message: true")
    assert text == "hello: def f, def f, def f"


async def test_message_that_the_template_changes_is_not_continued(connect, verifier):
    verifier.chat_template = template(
        "{% for message in messages %}{{ message.content|upper }}{% endfor %}"
    )
    async with face(await connect([verifier])) as clients:
        refused = await refusal(clients, PREFILL + "continue_final_message: true")
        assert error_info(refused).reason == "CHAT_REFUSED"
        assert await rendered(clients, PREFILL)


async def test_model_without_a_template_takes_no_chat(connect):
    async with face(await connect([Verifier()])) as clients:
        refused = await refusal(clients, USER)
        listed = await clients.generation.ListModels(served_model_pb2.ListModelsRequest())
    assert refused.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error_info(refused).reason == "NO_CHAT_TEMPLATE"
    assert not listed.models[0].has_chat_template


async def test_a_chat_for_a_model_that_is_not_served_is_not_found(connect):
    async with face(await connect([Verifier()])) as clients:
        asked = request(text=None, chat=chat(USER), model="other")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await collect(clients.generation.Generate(asked))
    assert error_info(refused.value).reason == "MODEL_NOT_FOUND"


async def test_model_with_a_template_is_listed_with_it(clients):
    listed = await clients.generation.ListModels(served_model_pb2.ListModelsRequest())
    assert listed.models[0].has_chat_template


async def test_template_of_the_first_replica_counts_until_none_has_it(connect):
    old, new = Verifier(), Verifier()
    old.chat_template = template("old {{ messages[0].content }}")
    new.chat_template = template("new {{ messages[0].content }}")
    await old.start()
    behind = await connect([old])
    await old.die()
    old.address = "127.0.0.1:0"
    behind = await connect([old, new])
    first, second = behind.mesh.verifiers.peers
    assert (first.refusal, second.refusal) == (None, None)
    async with face(behind) as clients:
        ours = await rendered(clients, USER)
        assert ours in {"old hello", "new hello"}
        leaving, left = (old, first) if ours == "old hello" else (new, second)
        await leaving.die()
        await until(lambda: not left.ready, first, second)
        assert await rendered(clients, USER) == (
            "new hello" if ours == "old hello" else "old hello"
        )


async def test_replica_that_restarts_with_another_template_brings_it(connect, verifier):
    behind = await connect([verifier])
    (peer,) = behind.mesh.verifiers.peers
    async with face(behind) as clients:
        assert await rendered(clients, USER) == PROMPT
        await verifier.die()
        await until(lambda: not peer.ready, peer)
        verifier.chat_template = template("new {{ messages[0].content }}")
        await verifier.start()
        await until(lambda: peer.ready, peer)
        assert await rendered(clients, USER) == "new hello"
