"""Arguments that are wrong are refused before anything is sent, by their names."""

import re

import pytest

from specmesh.client import AsyncClient, ChatMessage, Client, Filter, ToolCall, ToolChoice
from specmesh.client.connections.addresses import DEFAULT_TARGET, targets_or_default, with_port
from specmesh.client.requests.chats import chat_turn

CLIENT = AsyncClient()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("localhost", "localhost:50051"),
        ("mesh.example:443", "mesh.example:443"),
        ("10.0.0.7", "10.0.0.7:50051"),
        ("::1", "[::1]:50051"),
        ("[::1]", "[::1]:50051"),
        ("[::1]:7", "[::1]:7"),
        ("dns:///mesh.svc", "dns:///mesh.svc:50051"),
        ("dns:///mesh.svc:7", "dns:///mesh.svc:7"),
        ("dns://10.0.0.2/mesh.svc", "dns://10.0.0.2/mesh.svc:50051"),
        ("dns:mesh.svc", "dns:mesh.svc:50051"),
        ("unix:/run/mesh.sock", "unix:/run/mesh.sock"),
        ("ipv4:10.0.0.7:1,10.0.0.8:1", "ipv4:10.0.0.7:1,10.0.0.8:1"),
    ],
)
def test_a_target_without_a_port_has_the_orchestrators(target, expected):
    assert with_port(target) == expected
    assert with_port(expected) == expected


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("http://mesh", "target 'http://mesh' is a URL; .* such as mesh:50051"),
        ("https://mesh:8000/v1", "is a URL; .* such as mesh:50051"),
        ("", "target '' has no host"),
        (":50051", "has no host"),
        (" mesh", "has no host"),
        ("mesh:", "port '' is not from 1 to 65535"),
        ("mesh:grpc", "port 'grpc' is not from 1 to 65535"),
        ("mesh:70000", "port '70000' is not from"),
        ("dns:///", "has no host"),
        ("a:1,b:2", "has a comma; pass several targets one by one, or separate them by spaces"),
        ("dns:///a,b", "has a comma"),
    ],
)
def test_what_is_no_address_is_refused_when_the_client_is_made(target, message):
    with pytest.raises(ValueError, match=message):
        AsyncClient(target)


def test_without_targets_the_environment_names_them(monkeypatch):
    monkeypatch.delenv("SPECMESH_TARGET", raising=False)
    assert targets_or_default(()) == (DEFAULT_TARGET,)
    monkeypatch.setenv("SPECMESH_TARGET", "a b:7")
    assert targets_or_default(()) == ("a:50051", "b:7")
    assert targets_or_default(("c",)) == ("c:50051",)
    monkeypatch.setenv("SPECMESH_TARGET", "http://a")
    with pytest.raises(ValueError, match="is a URL"):
        AsyncClient()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temprature": 0}, "no option 'temprature'; did you mean 'temperature'?"),
        ({"stop": ["."]}, "no option 'stop'; did you mean 'stop_strings'?"),
        ({"max_new_tokens": 1}, "did you mean 'max_tokens'?"),
        ({"timeout": 1}, "did you mean 'timeout_s'?"),
        ({"n": 2}, "no option 'n': call once per answer, or use generate_many"),
        ({"no_such": 0.1}, "no option 'no_such'; the options are: .*lookahead.*temperature"),
        ({"add_generation_prompt": True}, "no option 'add_generation_prompt'"),
        ({"stop_strings": "."}, "stop_strings: expected a sequence of strings, got one string"),
        ({"stop_strings": ["a", 1]}, "stop_strings: expected strings, got 1"),
        ({"model": 5}, "model: expected a string, got 5"),
        ({"predictor": 5}, "predictor: expected a string, got 5"),
        ({"filter": "x"}, "filter: expected a Filter, got 'x'"),
        ({"logit_bias": [1]}, "logit_bias: expected a mapping of token ids to numbers, got list"),
        ({"banned_sequences": [1, 2]}, r"banned_sequences\[0\]: expected token ids, got 1"),
        ({"banned_sequences": [[1], ["a"]]}, r"banned_sequences\[1\]: "),
        ({"banned_sequences": "ab"}, "banned_sequences: expected sequences of token ids, got 'ab'"),
    ],
)
def test_an_option_that_is_wrong_is_named(options, message):
    with pytest.raises(TypeError, match=message):
        CLIENT.generate("a", **options)


async def test_an_option_of_a_template_that_is_wrong_is_named():
    for name in ("temperature", "add_generation_promt"):
        with pytest.raises(TypeError, match=f"no option '{name}'"):
            await CLIENT.apply_chat_template([ChatMessage("user", "a")], **{name: True})


@pytest.mark.parametrize("follow_load", [(1,), (0, 1, 2), 0.5])
def test_bounds_of_a_filter_are_two(follow_load):
    with pytest.raises(TypeError, match=r"filter\.follow_load: expected \(lowest, highest\)"):
        Filter(follow_load=follow_load)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tools": "[{}]"}, "tools: expected a sequence of tools, got str"),
        ({"tools": {"type": "function"}}, "tools: expected a sequence of tools, got dict"),
        ({"tools": 5}, "tools: expected a sequence of tools, got int"),
        ({"template_arguments": [1]}, "template_arguments: expected a mapping, got list"),
        ({"template_arguments": {"a": {1}}}, "template_arguments: "),
        ({"continue_final_message": "a"}, "continue_final_message: "),
        ({"content_as_text": "a"}, "content_as_text: "),
    ],
)
def test_an_option_of_a_chat_that_is_wrong_is_named(options, message):
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        CLIENT.chat([ChatMessage("user", "a")], **options)


async def test_what_is_no_sequence_of_token_ids_is_named():
    for call in (CLIENT.detokenize, CLIENT.token_strings):
        with pytest.raises(ValueError, match=r"^token_ids: "):
            await call([-1])


async def test_a_text_is_no_batch_of_prompts():
    with pytest.raises(TypeError, match="prompts: expected a sequence of prompts, got one string"):
        await CLIENT.generate_many("import os")


@pytest.mark.parametrize("concurrency", ["2", True, None])
async def test_a_concurrency_that_is_no_number_is_named(concurrency):
    with pytest.raises(TypeError, match=r"^concurrency must be a whole number, not "):
        await CLIENT.generate_many(["a"], concurrency=concurrency)


@pytest.mark.parametrize("target", [["127.0.0.1:1"], 50051, None, b"127.0.0.1:1"])
@pytest.mark.parametrize("made", [AsyncClient, Client])
def test_what_is_no_text_is_no_target(made, target):
    with pytest.raises(TypeError, match=f"^a target must be .* not {type(target).__name__}$"):
        made(target)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tls": True}, "tls must be a Tls, not bool"),
        ({"tls": "x"}, "tls must be a Tls, not str"),
        ({"token": 5}, "token must be a string or a function, not int"),
        ({"timeouts": 5}, "timeouts must be a Timeouts, not int"),
        ({"timeouts": 0}, "timeouts must be a Timeouts, not int"),
        ({"hooks": 5}, "hooks must be a Hooks, not int"),
        ({"interceptors": 5}, "interceptors must be a sequence, not int"),
        ({"interceptors": [5]}, r"interceptors\[0\] must be one of grpc.aio's, not int"),
        ({"channel_options": 5}, r"channel_options must be \(name, value\) pairs, not 5"),
        ({"channel_options": [("grpc.a",)]}, r"channel_options must be \(name, value\) pairs"),
        ({"channel_options": [(5, 5)]}, "channel_options: a name must be a string, not int"),
    ],
)
@pytest.mark.parametrize("made", [AsyncClient, Client])
def test_a_setting_of_a_client_that_is_wrong_is_named_when_it_is_made(made, options, message):
    with pytest.raises(TypeError, match=f"^{message}"):
        made("127.0.0.1:1", **options)


@pytest.mark.parametrize("name", ["max_retries", "max_resumes"])
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (None, TypeError, "must be a whole number, not NoneType"),
        ("3", TypeError, "must be a whole number, not str"),
        (True, TypeError, "must be a whole number, not bool"),
        (-1, ValueError, "must be at least 0, not -1"),
    ],
)
def test_numbers_of_calls_that_are_none_are_named(name, value, error, message):
    with pytest.raises(error, match=f"{name} {message}"):
        AsyncClient(**{name: value})


@pytest.mark.parametrize(
    ("prompt", "error", "message"),
    [
        (None, TypeError, "prompt: expected text or token ids, got NoneType"),
        (b"ab", TypeError, "prompt: expected text or token ids, got bytes"),
        (["a"], TypeError, "prompt: "),
        ([-1], ValueError, "prompt: "),
        ("\ud800", ValueError, "prompt: .*surrogates not allowed"),
    ],
)
def test_a_prompt_is_text_or_token_ids(prompt, error, message):
    with pytest.raises(error, match=message):
        CLIENT.generate(prompt)


def test_text_parts_are_one_text():
    parts = [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]
    turn = chat_turn("messages[0]", {"role": "user", "content": parts})
    assert turn == chat_turn("messages[0]", ChatMessage("user", "a b"))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "user", "content": 5}, r"messages\[0\].content: expected a string or text parts"),
        ({"role": "user", "content": ["a"]}, r"messages\[0\].content\[0\]: .* got 'a'"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
            r"messages\[0\].content\[0\]: expected a part of type 'text', got 'image_url'",
        ),
        ({"role": "user", "content": [{"type": "text"}]}, "a text part has only 'type' and 'text'"),
        ({"role": 1, "content": "a"}, r"messages\[0\].role: expected a string, got 1"),
        ({"role": "user"}, r"messages\[0\]: .* optionally 'name', .*, not 'role'"),
        (5, r"messages\[0\]: expected a ChatMessage or a mapping, got 5"),
    ],
)
def test_a_message_that_is_none_is_named(message, expected):
    with pytest.raises(TypeError, match=expected):
        CLIENT.chat([message])


def test_half_of_a_surrogate_pair_is_refused_under_the_name_of_its_field():
    with pytest.raises(ValueError, match=r"^request_id: .*surrogates not allowed"):
        CLIENT.generate("hello", request_id="\ud800")
    with pytest.raises(ValueError, match=r"^stop_strings: .*surrogates not allowed"):
        CLIENT.generate("hello", stop_strings=["\ud800"])


HALF = "\ud800"


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (ChatMessage("user", HALF), "content"),
        ({"role": HALF, "content": "a"}, "role"),
        (ChatMessage("a", "", tool_calls=(ToolCall("1", "f", HALF),)), "tool_calls[0].arguments"),
        (
            {"role": "a", "tool_calls": [{"id": "1", "function": {"name": HALF}}]},
            "tool_calls[0].name",
        ),
    ],
)
def test_half_of_a_surrogate_pair_in_a_message_is_refused_under_its_place(message, place):
    expected = re.escape(f"messages[1].{place}: ") + ".*surrogates not allowed"
    with pytest.raises(ValueError, match=f"^{expected}"):
        CLIENT.chat([ChatMessage("user", "a"), message])


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"tools": ["{}", HALF]}, "tools[1]: "),
        ({"tools": [{"name": HALF}]}, "tools[0]: "),
        ({"template_arguments": {"a": HALF}}, "template_arguments: "),
        ({"tool_choice": ToolChoice([HALF])}, "tool_choice.names: "),
    ],
)
def test_half_of_a_surrogate_pair_in_an_option_of_a_chat_likewise(options, place):
    with pytest.raises(ValueError, match=f"^{re.escape(place)}.*surrogates not allowed"):
        CLIENT.chat([ChatMessage("user", "a")], **options)
