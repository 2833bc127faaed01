"""Bodies have bounds, and the first error ends their reading: none costs more than it must."""

from __future__ import annotations

import json
import threading
import tracemalloc

import pytest
from tests.client.conftest import whole_answer

from specmesh.gateway.errors import ApiError
from specmesh.gateway.http.body import MAX_CONTAINERS, MAX_STRINGS, MAX_VALUES, parse_object
from specmesh.gateway.requests.chats import ChatRequest, chat_request
from specmesh.gateway.requests.completions import CompletionRequest, completion_request
from specmesh.gateway.responses import answers

ASKED = {"model": "toy", "prompt": "hello"}
CHAT = b'{"model":"m","messages":'
MESSAGE = {"role": "user", "content": "x"}


def schemas(schema):
    """``schema`` of pydantic-core, and all within it."""
    if isinstance(schema, dict):
        yield schema
        for each in schema.values():
            yield from schemas(each)
    elif isinstance(schema, list | tuple):
        for each in schema:
            yield from schemas(each)


@pytest.mark.parametrize("kind", [ChatRequest, CompletionRequest])
def test_every_list_has_a_bound_and_stops_at_the_first_wrong_item(kind):
    lists = [each for each in schemas(kind.__pydantic_core_schema__) if each.get("type") == "list"]
    assert lists
    assert all(each.get("max_length") and each.get("fail_fast") for each in lists)


@pytest.mark.parametrize("kind", [ChatRequest, CompletionRequest])
def test_every_dictionary_has_a_bound_that_counts_before_it_is_read(kind):
    every = list(schemas(kind.__pydantic_core_schema__))
    bounded = {id(each["schema"]) for each in every if each.get("type") == "function-before"}
    assert {id(each) for each in every if each.get("type") == "dict"} <= bounded


MANY = 30_000


@pytest.mark.parametrize(
    ("read", "asked", "param"),
    [
        (chat_request, {"messages": [{}] * MANY}, "messages[0].role"),
        (chat_request, {"messages": [MESSAGE] * 5000}, "messages"),
        (chat_request, {"messages": [{"role": "user", "content": [{}] * MANY}]},
         "messages[0].content[0].type"),
        (chat_request, {"messages": [{str(n): n for n in range(MANY)}]}, "messages[0].0"),
        (chat_request, {"messages": [MESSAGE], "metadata": dict.fromkeys(map(str, range(MANY)), 1)},
         "metadata"),
        (chat_request, {"messages": [MESSAGE],
                        "prompt_cache_options": dict.fromkeys(map(str, range(MANY)))},
         "prompt_cache_options"),
        (chat_request, {"messages": [MESSAGE],
                        "chat_template_kwargs": dict.fromkeys(map(str, range(MANY)))},
         "chat_template_kwargs"),
        (completion_request, {"prompt": [-1] * MANY}, "prompt[0]"),
        (completion_request, {"prompt": [[]] * MANY}, "prompt"),
        (completion_request, {"prompt": [[1], ["a"] * MANY]}, "prompt[1][0]"),
        (completion_request, {"prompt": ["a"] * MANY}, "prompt"),
        (completion_request, {"prompt": "a", "stop": [1] * MANY}, "stop[0]"),
        (completion_request, {"prompt": "a", "stop_token_ids": [1] * MANY}, "stop_token_ids"),
        (completion_request, {"prompt": "a", "logit_bias": dict.fromkeys(map(str, range(MANY)), 1)},
         "logit_bias"),
        (completion_request, {"prompt": "a", "specmesh": {"filter": {"follow_load": [1] * MANY}}},
         "specmesh.filter.follow_load"),
        (completion_request,
         {"prompt": "a", "specmesh": dict.fromkeys(map(str, range(MANY)))}, "specmesh.0"),
    ],
)  # fmt: skip
def test_many_wrong_values_cost_what_one_costs(read, asked, param):
    given = parse_object(json.dumps({"model": "toy", **asked}).encode())
    tracemalloc.start()
    try:
        with pytest.raises(ApiError) as raised:
            read(given)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert raised.value.param == param
    assert peak < 2_500_000


@pytest.mark.parametrize(
    ("unit", "param"),
    [
        (b"NaN", "prompt[0]"),
        (b"Infinity", "prompt[0]"),
        (b"1e400", "prompt[0]"),
        (b'{"a":1,"a":2}', "prompt[0].a"),
    ],
)
def test_many_values_that_json_does_not_have_cost_what_others_cost(unit, param):
    def peak_of(unit):
        body = b'{"prompt":[' + b",".join([unit] * MANY) + b"]}"
        tracemalloc.start()
        try:
            parse_object(body)
        except ApiError as error:
            assert error.param == param  # noqa: PT017
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return peak

    like = {b"NaN": b"1.5", b"Infinity": b"1.5e-300", b"1e400": b"1e-40"}.get(
        unit, b'{"a":1,"b":2}'
    )
    assert peak_of(unit) < 1.1 * peak_of(like)


@pytest.mark.parametrize(
    ("unit", "number", "said"),
    [
        (b"{}", MAX_CONTAINERS, "lists and objects"),
        (b"[]", MAX_CONTAINERS, "lists and objects"),
        (b"1", MAX_VALUES + 2, "values"),
        (b'""', MAX_STRINGS + 1, "strings"),
    ],
)
def test_a_body_of_more_values_than_any_request_has_is_refused_unread(unit, number, said):
    body = b'{"x":[' + b",".join([unit] * number) + b"]}"
    tracemalloc.start()
    try:
        with pytest.raises(ApiError, match=said) as raised:
            parse_object(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (raised.value.status, raised.value.code) == (413, "body_too_large")
    assert peak < 4 * len(body) + 100_000


def test_what_a_string_holds_counts_as_no_value():
    for text in (
        '[{"a": 1},]' * 100_000,
        '\\"' * 100_001 + "[{" * 40_000,
        "\\" * 7 + '"[' * 40_000,
    ):
        asked = {"model": "toy", "prompt": text}
        assert parse_object(json.dumps(asked).encode()) == asked


def test_the_largest_prompts_are_read():
    ids = {"model": "toy", "prompt": list(range(2**19))}
    assert len(completion_request(parse_object(json.dumps(ids).encode())).prompts[0]) == 2**19
    part = {"type": "text", "text": "x"}
    chat = {"model": "toy", "messages": [{"role": "user", "content": [part] * 3}] * 4096}
    assert len(chat_request(parse_object(json.dumps(chat).encode())).messages) == 4096


async def test_a_large_body_is_read_beside_the_event_loop(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    text = "x" * 2**21
    response = await gateway.post("/v1/completions", {**ASKED, "prompt": text})
    assert response.status_code == 200
    assert orchestrator.requests[0].text == text


async def test_a_large_wrong_body_is_refused_by_name(gateway):
    response = await gateway.post("/v1/completions", {**ASKED, "prompt": [-1] * 2**17})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "prompt[0]")


async def test_large_requests_are_written_beside_the_event_loop(gateway, orchestrator, monkeypatch):
    threads = []

    def noted(ask):
        def asking(*asked):
            threads.append(threading.current_thread())
            return ask(*asked)

        return asking

    for name in ("complete", "chat"):
        monkeypatch.setattr(answers, name, noted(getattr(answers, name)))
    orchestrator.generate_scripts = [whole_answer] * 4
    for text in ("x", "x" * 2**15):
        await gateway.post("/v1/completions", {**ASKED, "prompt": text})
        messages = [{"role": "user", "content": text}]
        await gateway.post("/v1/chat/completions", {"model": "toy", "messages": messages})
    loops = threading.current_thread()
    assert [each is loops for each in threads] == [True, True, False, False]
