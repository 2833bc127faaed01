"""What can't be answered is refused by its name, before the mesh hears of it."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmesh.client.requests.build import chat_message
from specmesh.gateway.errors import ApiError
from specmesh.gateway.http.body import parse_object
from specmesh.gateway.requests.chats import chat_request
from specmesh.gateway.requests.completions import completion_request
from specmesh.gateway.requests.extension import Extension
from specmesh.gateway.requests.parameters.tables import CHAT, COMPLETIONS

COMPLETION = {"model": "toy", "prompt": "hello"}
MESSAGES = [{"role": "user", "content": "hello"}]
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([2**32, 2**53, 2**64, -1, 10**40, 1e308, -0.0, "", "auto", "text"])
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


def tool(**changes: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": "f", **changes}}


def nested(depth: int) -> object:
    """Lists in lists."""
    return [nested(depth - 1)] if depth else 1


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": 3}, "model"),
        ({"model": None}, "model"),
        ({"prompt": None}, "prompt"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [1, True]}, "prompt[1]"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": [2**32]}, "prompt[0]"),
        ({"prompt": [[1], [1.5]]}, "prompt[1][0]"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 5.0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 2**32}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 1e39}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"top_p": []}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 2**40}, "n"),
        ({"seed": -2}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"stop": 3}, "stop"),
        ({"stop": ["a", None]}, "stop[1]"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stream": 1}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"stream": True, "stream_options": {"other": 1}}, "stream_options.other"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"user": 3}, "user"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"best_of": 2, "n": 3}, "best_of"),
        ({"best_of": 0}, "best_of"),
        ({"best_of": "2"}, "best_of"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"prompt_logprobs": True}, "prompt_logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"guided_regex": 5}, "guided_regex"),
        ({"guided_choice": "a"}, "guided_choice"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": ["a", ""]}, "guided_choice[1]"),
        ({"guided_json": {}, "guided_regex": "a"}, "guided_regex"),
        ({"guided_grammar": "a", "response_format": {"type": "json_object"}}, "guided_grammar"),
        ({"guided_decoding_backend": "xgrammar"}, "guided_decoding_backend"),
        ({"structural_tag": "{}"}, "structural_tag"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
        ({"echo": 1}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"logit_bias": {"1": "5"}}, "logit_bias[1]"),
        ({"logit_bias": {"a": 5}}, "logit_bias"),
        ({"logit_bias": {"-1": 5}}, "logit_bias"),
        ({"logit_bias": {"1": 1, "01": 2}}, "logit_bias"),
        ({"logit_bias": {"9" * 5000: 5}}, "logit_bias[99999999999]"),
        ({"logit_bias": dict.fromkeys(map(str, range(4097)), 1)}, "logit_bias"),
        ({"presence_penalty": "high"}, "presence_penalty"),
        ({"bad_words": "word"}, "bad_words"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"bad_words": ["a", 3]}, "bad_words[1]"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": False}, "top_k"),
        ({"min_p": "a"}, "min_p"),
        ({"repetition_penalty": []}, "repetition_penalty"),
        ({"stop_token_ids": [1, "a"]}, "stop_token_ids[1]"),
        ({"skip_special_tokens": 0}, "skip_special_tokens"),
        ({"include_reasoning": False}, "include_reasoning"),
        ({"add_special_tokens": 0}, "add_special_tokens"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"chat_template_kwargs": {"a": 1}}, "chat_template_kwargs"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"messages": MESSAGES}, "messages"),
        ({"specmesh": 3}, "specmesh"),
        ({"specmesh": {"other": 3}}, "specmesh.other"),
        ({"specmesh": {"lookahead": -1}}, "specmesh.lookahead"),
        ({"specmesh": {"acceptance_mode": "lossy"}}, "specmesh.acceptance_mode"),
        ({"specmesh": {"request_id": "x" * 129}}, "specmesh.request_id"),
        ({"specmesh": {"banned_token_ids": [1, "a"]}}, "specmesh.banned_token_ids[1]"),
        ({"specmesh": {"banned_sequences": [[1], 2]}}, "specmesh.banned_sequences[1]"),
        ({"specmesh": {"top_k": 5}}, "specmesh.top_k"),
        ({"specmesh": {"end_token_ids": [5]}}, "specmesh.end_token_ids"),
        ({"specmesh": {"content_as_text": True}}, "specmesh.content_as_text"),
        ({"specmesh": {"filter": {"follow_load": [1]}}}, "specmesh.filter.follow_load"),
        (
            {"specmesh": {"filter": {"threshold": 1, "escalation_rate": 0.5}}},
            "specmesh.filter",
        ),
    ],
)
def test_a_wrong_field_of_completions_is_named(change, param):
    with pytest.raises(ApiError) as raised:
        completion_request({**COMPLETION, **change})
    assert (raised.value.status, raised.value.param) == (400, param)
    assert repr(param) in raised.value.message
    assert "instance of" not in raised.value.message  # of a class that is ours


def schema_format(schema, name="answer", **more):
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, **more}}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": ["hello"]}, "messages[0]"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"content": "hello"}]}, "messages[0].role"),
        ({"messages": [{"role": "function", "content": "hello"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "hello"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "tool", "tool_call_id": "a"}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "tool_calls": []}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": "x", "tool_calls": [CALL]}]},
            "messages[0].tool_calls",
        ),
        (
            {"messages": [{"role": "user", "content": "x", "tool_call_id": "a"}]},
            "messages[0].tool_call_id",
        ),
        (
            {"messages": [{"role": "user", "content": "x", "reasoning_content": "a"}]},
            "messages[0].reasoning_content",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{**CALL, "type": "custom"}]}]},
            "messages[0].tool_calls[0].type",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [CALL] * 129}]},
            "messages[0].tool_calls",
        ),
        ({"messages": [{"role": "user", "content": "x", "name": 3}]}, "messages[0].name"),
        ({"messages": [{"role": "user", "content": "x", "name": "a" * 65}]}, "messages[0].name"),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{}]}]},
            "messages[0].tool_calls[0].id",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0]",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": 3, "text": "x"}]}]},
            "messages[0].content[0].type",
        ),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 3}, "logprobs"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].custom"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [tool(parameters=[])]}, "tools[0].function.parameters"),
        ({"tools": [tool(parameters={"a": [0] * 5000})]}, "tools[0].function.parameters"),
        ({"tools": [tool(strict="yes")]}, "tools[0].function.strict"),
        ({"tools": [tool()] * 129}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tool_choice": {"type": "custom", "function": {"name": "f"}}}, "tool_choice.type"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools"),
        ({"tool_choice": "f"}, "tool_choice"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"include_reasoning": 1}, "include_reasoning"),
        ({"skip_special_tokens": 1}, "skip_special_tokens"),
        ({"functions": [{}]}, "functions"),
        ({"response_format": "json_object"}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": schema_format(None)}, "response_format.json_schema.schema"),
        ({"response_format": schema_format([1])}, "response_format.json_schema.schema"),
        ({"response_format": schema_format({}, name="")}, "response_format.json_schema.name"),
        ({"response_format": schema_format({}, strict=1)}, "response_format.json_schema.strict"),
        (
            {"response_format": schema_format({}, description="", strict=True, a=1, b=2)},
            "response_format.json_schema.a",
        ),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
            "structured_outputs",
        ),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"choice": "yes"}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": [""]}}, "structured_outputs.choice[0]"),
        ({"structured_outputs": {"json": 3}}, "structured_outputs.json"),
        (
            {"structured_outputs": {"regex": "a", "whitespace_pattern": " "}},
            "structured_outputs.whitespace_pattern",
        ),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"prompt": "hello"}, "prompt"),
        ({"min_p": [0.05]}, "min_p"),
        ({"add_special_tokens": True}, "add_special_tokens"),
        ({"continue_final_message": "yes"}, "continue_final_message"),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"a": [10**400]}}, "chat_template_kwargs.a[0]"),
        ({"chat_template_kwargs": {"a": {"b": 2**53 + 1}}}, "chat_template_kwargs.a.b"),
        ({"chat_template_kwargs": {"a": [0] * 1025}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"a": nested(30)}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"a": nested(400)}}, "chat_template_kwargs"),
    ],
)
def test_a_wrong_field_of_chats_is_named(change, param):
    with pytest.raises(ApiError) as raised:
        chat_request({"model": "toy", "messages": MESSAGES, **change})
    assert (raised.value.status, raised.value.param) == (400, param)
    assert repr(param) in raised.value.message
    assert "instance of" not in raised.value.message  # of a class that is ours


@pytest.mark.parametrize(
    ("path", "change", "param"),
    [
        ("/v1/completions", {"n": 65}, "n"),
        ("/v1/completions", {"prompt": ["a"] * 65}, "prompt"),
        ("/v1/completions", {"prompt": ["a"] * 33, "n": 2}, "n"),
        ("/v1/completions", {"temperature": "hot"}, "temperature"),
        ("/v1/chat/completions", {"messages": MESSAGES, "prompt": None, "n": 65}, "n"),
    ],
)
async def test_the_mesh_hears_nothing_of_what_is_refused(
    gateway, orchestrator, path, change, param
):
    asked = {**COMPLETION, **change}
    if "messages" in change:
        del asked["prompt"]
    response = await gateway.post(path, asked)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
    assert orchestrator.requests == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"top_k": -2}, "'top_k': Input should be greater than or equal to -1"),
        ({"seed": -2}, "'seed': Input should be greater than or equal to -1"),
        ({"seed": 2**53}, f"'seed': Input should be less than {2**53}"),
        ({"top_p": 2}, "'top_p': Input should be less than or equal to 1"),
        ({"prompt": []}, "'prompt': List should have at least 1 item, not 0"),
        ({"stop": ["a"] * 17}, "'stop': List should have at most 16 items, not 17"),
        (
            {"specmesh": {"filter": {"threshold": 1, "escalation_rate": 0.2}}},
            "'specmesh.filter': at most one of threshold, escalation_rate and follow_load can be "
            "set",
        ),
    ],
)
def test_a_refusal_states_the_range_of_the_field_in_plain_words(change, message):
    with pytest.raises(ApiError) as raised:
        completion_request({**COMPLETION, **change})
    assert raised.value.message == message


@pytest.mark.parametrize("given", [{}, {"json_object": False}, {"regex": "a", "grammar": "b"}])
def test_the_kinds_of_grammars_are_told_by_the_names_that_callers_write(given):
    with pytest.raises(ApiError) as raised:
        completion_request({**COMPLETION, "structured_outputs": given})
    assert raised.value.message == (
        "'structured_outputs': must have exactly one of json, json_object, regex, choice and "
        "grammar"
    )


def test_an_image_is_said_to_be_what_the_model_does_not_read():
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}]
    with pytest.raises(ApiError) as raised:
        chat_request({"model": "toy", "messages": messages})
    assert raised.value.message == (
        "'messages[0].content[1]': content parts of type 'image_url' are not supported: the model "
        "reads text only"
    )


def test_a_name_of_another_servers_extension_is_told_where_it_goes():
    with pytest.raises(ApiError, match=r"'specmesh\.typical_p'"):
        completion_request({**COMPLETION, "typical_p": 0.5})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not valid JSON"),
        (b"hello", "not valid JSON"),
        (b'"hello"', "must be an object"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"n": ' + b"1" * 5000 + b"}", "not valid JSON"),
        (b"[" * 10_000, "nested too deeply"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(body, said):
    with pytest.raises(ApiError, match=said) as raised:
        parse_object(body)
    assert (raised.value.status, raised.value.code) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"model": "a", "n": 1, "n": 2}', "n"),
        (b'{"model": "a", "specmesh": {"top_k": 1, "top_k": 2}}', "specmesh.top_k"),
        (b'{"model": "a", "temperature": NaN}', "temperature"),
        (b'{"tools": [{"parameters": {"minimum": -1e400}}]}', "tools[0].parameters.minimum"),
        (
            b'{"model": "a", "specmesh": {"filter": {"threshold": -Infinity}}}',
            "specmesh.filter.threshold",
        ),
        (b'{"model": "a", "prompt": ["b", "\\ud800"]}', "prompt[1]"),
        (b'{"messages": [{"role": "user", "content": "\\udfff!"}]}', "messages[0].content"),
        (b'{"metadata": {"\\ud800": "x"}}', "metadata"),
        (b'{"\\ud800": 1}', None),
    ],
)
def test_what_no_field_can_hold_is_refused_by_its_path(body, param):
    with pytest.raises(ApiError) as raised:
        parse_object(body)
    assert (raised.value.status, raised.value.param) == (400, param)
    assert raised.value.message.encode()


async def test_a_body_of_another_type_is_refused(gateway):
    for told in ({"content-type": "text/plain"}, {"content-type": "application/x-json"}):
        response = await gateway.post("/v1/completions", COMPLETION, **told)
        assert response.status_code == 415
    response = await gateway.http.post("/v1/completions", content=b"{}")
    assert response.status_code == 415


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"content-encoding": "gzip"}, "content-encoding"),
        ({"content-type": "application/json; charset=utf-16"}, "charset"),
    ],
)
async def test_a_body_that_is_not_plain_utf_8_is_refused_as_such(gateway, headers, named):
    response = await gateway.post("/v1/completions", b"\x1f\x8b", **headers)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (415, "unsupported_media_type")
    assert named in error["message"]


async def test_a_charset_may_be_named_if_it_is_that_of_json(gateway, orchestrator):
    told = {"content-type": 'application/json; charset="UTF-8"', "content-encoding": "identity"}
    response = await gateway.post("/v1/completions", b"{}", **told)
    assert response.status_code == 400


async def test_a_body_that_is_too_large_is_refused_before_all_of_it_is_read(
    open_gateway, orchestrator
):
    gateway = await open_gateway(orchestrator.address, max_request_bytes=1024)
    response = await gateway.post("/v1/completions", {**COMPLETION, "prompt": "x" * 1024})
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")

    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"transfer-encoding: chunked\r\n\r\n401\r\n" + b" " * 1025 + b"\r\n"
    )
    assert b" 413 " in await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    await writer.wait_closed()


def refusal(read) -> ApiError | None:
    """The error that ``read`` raises, if it does; no other is expected."""
    try:
        read()
    except ApiError as error:
        return error
    return None


def assert_refused_by_name(read, asked: dict[str, object]) -> None:
    """``asked`` is read, or refused with status 400 and the name of a field of it."""
    error = refusal(lambda: read(parse_object(json.dumps(asked).encode())))
    if error is not None:
        assert error.status == 400
        assert error.code == "invalid_json" or error.param
        assert error.message


@given(name=st.sampled_from([*COMPLETIONS, "specmesh", "other"]), value=JSON)
def test_no_value_of_a_field_of_completions_is_more_than_a_bad_request(name, value):
    assert_refused_by_name(completion_request, {**COMPLETION, name: value})


@given(name=st.sampled_from([*CHAT, "specmesh", "other"]), value=JSON)
def test_no_value_of_a_field_of_chats_is_more_than_a_bad_request(name, value):
    asked = {"model": "toy", "messages": MESSAGES, "stream": True, name: value}
    assert_refused_by_name(chat_request, asked)


@given(arguments=st.dictionaries(st.text(max_size=8), JSON, max_size=3))
def test_no_arguments_of_a_template_are_more_than_a_bad_request(arguments):
    asked = {"model": "toy", "messages": MESSAGES, "chat_template_kwargs": arguments}
    error = refusal(lambda: chat_request(asked))
    if error is None:
        given = chat_request(asked).chat_keywords
        assert chat_message([{"role": "user", "content": "x"}], given).SerializeToString()
    else:
        assert (error.status, error.param[:20]) == (400, "chat_template_kwargs")


@given(name=st.sampled_from([*Extension.model_fields]), value=JSON)
def test_no_value_in_the_extension_is_more_than_a_bad_request(name, value):
    assert_refused_by_name(completion_request, {**COMPLETION, "specmesh": {name: value}})


@given(messages=JSON | st.lists(st.fixed_dictionaries({"role": JSON, "content": JSON}), max_size=3))
def test_no_messages_are_more_than_a_bad_request(messages):
    assert_refused_by_name(chat_request, {"model": "toy", "messages": messages})


@given(body=st.binary(max_size=64) | st.text(max_size=64).map(str.encode))
def test_no_bytes_are_more_than_a_bad_request(body):
    error = refusal(lambda: parse_object(body))
    assert error is None or error.status == 400


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models?limit=nan"),
        ("GET", "/v1/models/toy?limit=1&limit=2"),
        ("POST", "/v1/completions?limit="),
        ("POST", "/v1/chat/completions?limit=1"),
    ],
)
async def test_a_query_parameter_is_refused_by_its_name(gateway, method, path):
    response = await gateway.http.request(method, path, json=COMPLETION)
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["param"], error["code"]) == ("limit", "unknown_parameter")
