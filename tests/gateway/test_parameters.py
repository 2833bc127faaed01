"""Every parameter of OpenAI's calls is named in our table, and in the docs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_type_hints

import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.chats import ChatRequest
from specmesh.gateway.requests.completions import CompletionRequest
from specmesh.gateway.requests.extension import Extension
from specmesh.gateway.requests.parameters.other_servers import OTHER_SERVERS
from specmesh.gateway.requests.parameters.responses import OPENAI_RESPONSES, RESPONSES
from specmesh.gateway.requests.parameters.standing import Standing
from specmesh.gateway.requests.parameters.tables import (
    CHAT,
    COMPLETIONS,
    EXTENSION,
    OPENAI_CHAT,
    OPENAI_COMPLETIONS,
    taken,
)
from specmesh.gateway.requests.responses import ResponseFields

DOCS = Path(__file__).parents[2] / "docs" / "openai.md"

CALLS = [
    (OPENAI_COMPLETIONS, completion_create_params, "Completion"),
    (OPENAI_CHAT, chat_create_params, "Completion"),
    (OPENAI_RESPONSES, response_create_params, "Response"),
]


def openais(params, kind) -> set[str]:
    """The parameters of a call, by the signature of the package that is installed."""
    variants = [
        getattr(params, f"{kind}CreateParams{way}") for way in ("NonStreaming", "Streaming")
    ]
    return {name for each in variants for name in get_type_hints(each)}


def section(heading: str) -> str:
    """The part of the docs under ``heading``."""
    return DOCS.read_text().partition(f"{heading}\n")[2].partition("\n#")[0]


@pytest.mark.parametrize(("table", "params", "kind"), CALLS)
def test_the_table_names_every_parameter_of_the_openai_package_and_no_other(table, params, kind):
    assert openais(params, kind) - set(table) == set(), "not in the table"
    assert set(table) - openais(params, kind) == set(), "not in the package"


@pytest.mark.parametrize(
    ("table", "request_class"), [(COMPLETIONS, CompletionRequest), (CHAT, ChatRequest)]
)
def test_what_is_not_refused_has_a_field_with_a_type(table, request_class):
    read = {name for name, each in table.items() if each.standing is not Standing.REFUSED}
    assert read | {EXTENSION} == set(request_class.model_fields)


def test_what_is_not_refused_of_responses_has_a_field_there_or_in_the_chat_that_it_is():
    read = {name for name, each in RESPONSES.items() if each.standing is not Standing.REFUSED}
    assert set(ResponseFields.model_fields) <= read
    assert read - set(ResponseFields.model_fields) <= set(ChatRequest.model_fields)


@pytest.mark.parametrize(
    ("heading", "table"),
    [
        ("### Completions", OPENAI_COMPLETIONS),
        ("### Chats", OPENAI_CHAT),
        ("### Responses", OPENAI_RESPONSES),
    ],
)
def test_the_docs_have_the_same_table(heading, table):
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", section(heading), re.MULTILINE)
    assert dict(rows) == {name: each.standing.value for name, each in table.items()}
    assert len(rows) == len(table)


def test_the_docs_have_the_table_of_other_servers_parameters_with_their_neutral_values():
    rows = re.findall(
        r"^\| (`.+`) \| (.*) \| (\w+) \| (\w+) \|", section("### Of other servers"), re.MULTILINE
    )
    told = [
        (name, neutral, completions, chats)
        for names, neutral, completions, chats in rows
        for name in re.findall(r"`(\w+)`", names)
    ]
    assert sorted(told) == [
        (
            name,
            ", ".join(
                f"`{json.dumps(value)}`" for value in (*each.neutral, *each.neutral_if_refused)
            ),
            *(each.completions.value, each.chats.value),
        )
        for name, each in sorted(OTHER_SERVERS.items())
    ]


def test_the_docs_name_every_field_of_the_extension():
    named = set(re.findall(r"^\| `(\w+)` \|", section("## Speculation"), re.MULTILINE))
    assert set(Extension.model_fields) <= named


@pytest.mark.parametrize("table", [COMPLETIONS, CHAT, RESPONSES])
def test_a_refused_parameter_is_taken_only_where_it_says_nothing(table):
    for name, parameter in table.items():
        if parameter.standing is Standing.REFUSED:
            for neutral in (None, *parameter.neutral):
                assert taken({name: neutral}, table, {}) == {}
            with pytest.raises(ApiError) as raised:
                taken({name: ["anything else"]}, table, {})
            assert (raised.value.param, raised.value.code) == (name, "unsupported_parameter")


def test_false_is_not_zero():
    with pytest.raises(ApiError):
        taken({"best_of": True}, CHAT, {})
    with pytest.raises(ApiError):
        taken({"use_beam_search": 0}, COMPLETIONS, {})
