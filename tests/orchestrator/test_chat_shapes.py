"""Templates get contents in the shape that they read, and one that leaves words out is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from jinja2 import TemplateError
from tests.orchestrator.face import face, template
from tests.orchestrator.peers import Verifier

from specmesh.orchestrator.chats.shapes import Message, WordsLost, readable
from specmesh.serving.templates.template_language import render
from specmesh.v1 import chat_pb2, tokenizer_pb2

PARTS = (
    "{% for message in messages %}{{ message.role }}:"
    "{% for part in message.content if part.type == 'text' %} {{ part.text }}{% endfor %}{{ '\n' }}"
    "{% endfor %}"
)
EITHER = (
    "{% for message in messages %}{{ message.role }}: "
    "{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{{ part['text'] }}!{% endfor %}{% endif %}"
    "{{ '\n' }}"
    "{% endfor %}"
)
SYSTEM_AS_TEXT = (
    "{% if messages[0].role == 'system' %}system: {{ messages[0].content }}\n"
    "{% set messages = messages[1:] %}{% endif %}" + PARTS
)
FIRST_PART = "{% for message in messages %}{{ message.content[0].text.strip() }}\n{% endfor %}"
AS_JSON = "{% for message in messages %}{{ message.content | tojson }}\n{% endfor %}"
CHANGED = "{% for message in messages %}{{ message.content | trim | upper }}\n{% endfor %}"
KNOWN_ROLES = (
    "{% for message in messages %}"
    "{% if message.role == 'user' %}U: {{ message.content }}\n"
    "{% elif message.role == 'assistant' %}A: {{ message.content }}\n{% endif %}{% endfor %}"
)
ALTERNATING = (
    "{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{{ message.content }}\n{% endfor %}"
)

USER = {"role": "user", "content": "twenty words"}
TALK = [
    {"role": "system", "content": "be brief"},
    USER,
    {"role": "assistant", "content": "good"},
    {"role": "user", "content": "more"},
]


def prompt(source: str, messages: Sequence[Message]) -> str:
    def rendered(given: Sequence[Message]) -> str:
        return render(source, {"messages": given}, 1 << 20)

    return rendered(readable(messages, rendered))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (PARTS, "system: be brief\nuser: twenty words\nassistant: good\nuser: more\n"),
        (EITHER, "system: be brief\nuser: twenty words\nassistant: good\nuser: more\n"),
        (SYSTEM_AS_TEXT, "system: be brief\nuser: twenty words\nassistant: good\nuser: more\n"),
        (FIRST_PART, "be brief\ntwenty words\ngood\nmore\n"),
        (AS_JSON, '"be brief"\n"twenty words"\n"good"\n"more"\n'),
        (CHANGED, "BE BRIEF\nTWENTY WORDS\nGOOD\nMORE\n"),
    ],
    ids=["parts", "either", "system as text", "first part", "as JSON", "changed"],
)
def test_contents_come_in_the_shape_that_the_template_reads(source, expected):
    assert prompt(source, TALK) == expected


@pytest.mark.parametrize(
    ("source", "messages", "said"),
    [
        (KNOWN_ROLES, TALK, r"messages\[0\], whose role is 'system'"),
        ("{{ messages[-1].content }}", TALK, r"messages\[0\], whose role is 'system'"),
        ("You help.", [USER], r"messages\[0\], whose role is 'user'"),
        (
            "{% for part in messages[0].content %}{{ part.image }}{% endfor %}",
            [USER],
            r"messages\[0\], whose role is 'user'",
        ),
    ],
    ids=["a role", "all but the last", "all", "all but pictures"],
)
def test_a_template_that_leaves_words_out_is_refused(source, messages, said):
    with pytest.raises(WordsLost, match=said):
        prompt(source, messages)


def test_a_message_that_says_nothing_may_be_left_out():
    assert prompt(KNOWN_ROLES, [{"role": "system", "content": " \n"}, USER]) == "U: twenty words\n"


def test_a_template_that_refuses_the_chat_in_any_shape_says_why():
    with pytest.raises(TemplateError, match="roles must alternate"):
        prompt(ALTERNATING, TALK)
    assert prompt(ALTERNATING, TALK[1:]) == "twenty words\ngood\nmore\n"


def test_what_a_template_does_with_a_roles_words_does_not_depend_on_other_messages():
    for messages in (TALK[:2], TALK[1:2], TALK[1:], TALK * 3):
        text = prompt(EITHER, messages)
        assert all(message["content"] in text for message in messages)


async def test_the_words_of_a_chat_reach_the_prompt_or_it_is_refused(connect):
    verifier = Verifier()
    verifier.chat_template = template(PARTS)
    async with face(await connect([verifier])) as clients:
        asked = tokenizer_pb2.ApplyChatTemplateRequest(
            chat=chat_pb2.Chat(
                messages=[chat_pb2.ChatMessage(**USER), {"role": "assistant", "content": "I"}],
                continue_final_message=True,
            )
        )
        response = await clients.tokenizer.ApplyChatTemplate(asked)
    assert response.text == "user: twenty words\nassistant: I"
