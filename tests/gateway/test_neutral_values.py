"""What other servers have beyond OpenAI's API passes where it asks for nothing."""

from __future__ import annotations

import pytest
from tests.client.conftest import TOKENS, whole_answer

from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.chats import chat_request
from specmesh.gateway.requests.completions import completion_request
from specmesh.gateway.requests.parameters.other_servers import OTHER_SERVERS
from specmesh.gateway.requests.parameters.standing import Standing
from specmesh.gateway.requests.parameters.tables import CHAT, COMPLETIONS

COMPLETION = {"model": "toy", "prompt": "hello"}
CHATTED = {"model": "toy", "messages": [{"role": "user", "content": "hello"}]}
CALLS = [
    pytest.param(completion_request, COMPLETION, id="completions"),
    pytest.param(chat_request, CHATTED, id="chats"),
]
BOTH = pytest.mark.parametrize(("read", "asked"), CALLS)

NEUTRAL = [
    {"repetition_penalty": 1.0},
    {"repetition_penalty": 1},
    {"min_p": 0},
    {"min_p": 0.0},
    {"top_k": -1},
    {"top_k": 0},
    {"skip_special_tokens": True},
    {"spaces_between_special_tokens": True},
    {"length_penalty": 1},
    {"min_tokens": 0},
    {"stop_token_ids": []},
    {"bad_words": []},
    {"use_beam_search": False},
    {"include_stop_str_in_output": False},
    {"best_of": 1},
    {"echo": False},
    {"priority": 0},
    {"response_format": {"type": "text"}},
    {"continue_final_message": False},
    {"chat_template_kwargs": {}},
    {"chat_template": None},
    {"truncate_prompt_tokens": None},
    {"seed": -1},
]


@BOTH
@pytest.mark.parametrize("neutral", NEUTRAL, ids=str)
def test_a_neutral_value_passes(read, asked, neutral):
    table = COMPLETIONS if read is completion_request else CHAT
    given = read({**asked, **neutral})
    ((name, value),) = neutral.items()
    if name == "response_format":
        assert given.keywords(0, 1) == read(asked).keywords(0, 1)
    elif table[name].standing is Standing.REFUSED or name in {"seed", "best_of"}:
        assert given == read(asked)  # as if it had been left out
    else:
        # It may undo a default that the author of the model recommends.
        assert getattr(given, name) == {"top_k": 0}.get(name, value)


@BOTH
def test_every_extension_passes_with_each_of_its_neutral_values_and_null(read, asked):
    for name, extension in OTHER_SERVERS.items():
        for value in (None, *extension.neutral):
            if name in {"add_special_tokens"}:  # it depends on the call
                continue
            assert read({**asked, name: value}), name


@BOTH
def test_any_other_value_of_an_extension_is_refused_by_name(read, asked):
    table = COMPLETIONS if read is completion_request else CHAT
    for name in OTHER_SERVERS:
        if table[name].standing is Standing.REFUSED:
            with pytest.raises(ApiError) as raised:
                read({**asked, name: "anything else"})
            assert (raised.value.param, raised.value.code) == (name, "unsupported_parameter")


@BOTH
def test_true_is_not_one_and_false_is_not_zero(read, asked):
    for value in ({"repetition_penalty": True}, {"min_p": False}, {"seed": False}):
        with pytest.raises(ApiError) as raised:
            read({**asked, **value})
        assert raised.value.param in value


async def test_the_body_of_vllms_load_generator_is_answered(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    body = {
        **COMPLETION,
        "repetition_penalty": 1.0,
        "max_tokens": 8,
        "logprobs": None,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "temperature": 0.0,
    }
    *_, usage, done = await gateway.events("/v1/completions", body)
    assert done is None
    assert usage["usage"]["completion_tokens"] == len(TOKENS)


@pytest.mark.parametrize(
    ("path", "asked"), [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHATTED)]
)
async def test_no_mass_at_all_leaves_the_likeliest_token(gateway, orchestrator, path, asked):
    for zero in (0, 0.0, -0.0):
        orchestrator.generate_scripts = [whole_answer]
        sent = await gateway.post(path, {**asked, "top_p": zero, "temperature": 0.7})
        assert sent.status_code == 200
        sampling = orchestrator.requests[-1].sampling
        assert sampling.HasField("temperature")
        assert (sampling.temperature, sampling.HasField("top_p")) == (0, False)


@BOTH
def test_metadata_is_checked_and_ignored(read, asked):
    assert read({**asked, "metadata": {"run": "7"}}).model == "toy"


def test_log_probabilities_of_no_other_tokens_need_none_at_all():
    asked = {**CHATTED, "logprobs": False, "top_logprobs": 0}
    assert chat_request(asked).num_top_logprobs is None
