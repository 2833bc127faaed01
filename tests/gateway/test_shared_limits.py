"""The gateway already applies the orchestrator's limits to what each answer's request holds."""

from __future__ import annotations

import pytest

from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.completions import completion_request
from specmesh.orchestrator.admission import request_limits

ASKED = {"model": "toy", "prompt": "hello"}


@pytest.mark.parametrize(
    ("most", "names"),
    [
        (request_limits.MAX_STOP_STRING_CHARS, ("stop",)),
        (request_limits.MAX_BAD_WORD_CHARS, ("bad_words",)),
        (request_limits.MAX_GRAMMAR_BYTES, ("guided_regex", "guided_grammar", "guided_choice")),
    ],
)
def test_a_text_is_as_long_as_the_orchestrator_allows(most, names):
    for name in names:
        as_list = name in {"bad_words", "guided_choice"}
        for text, is_read in (("x" * most, True), ("x" * (most + 1), False)):
            given = {**ASKED, name: [text] if as_list else text}
            if is_read:
                assert completion_request(given)
                continue
            with pytest.raises(ApiError, match=str(most)) as raised:
                completion_request(given)
            assert raised.value.param in {name, f"{name}[0]"}


@pytest.mark.parametrize(
    ("name", "most", "entry"),
    [
        ("stop", request_limits.MAX_STOP_STRINGS, "x"),
        ("stop_token_ids", request_limits.MAX_STOP_TOKENS, 1),
        ("bad_words", request_limits.MAX_BAD_WORDS, "x"),
        ("allowed_token_ids", request_limits.MAX_LISTED_TOKENS, 1),
        ("specmesh.banned_token_ids", request_limits.MAX_LISTED_TOKENS, 1),
        ("specmesh.banned_sequences", request_limits.MAX_BANNED_SEQUENCES, [1]),
        ("specmesh.banned_sequences[0]", request_limits.MAX_BANNED_SEQUENCE, 1),
    ],
)
def test_a_list_is_as_long_as_the_orchestrator_allows(name, most, entry):
    def asking(num_entries):
        at, _, field = name.rpartition(".")
        entries = [entry] * num_entries
        given = {field.removesuffix("[0]"): [entries] if field.endswith("[0]") else entries}
        return {**ASKED, **({at: given} if at else given)}

    assert completion_request(asking(most))
    with pytest.raises(ApiError) as raised:
        completion_request(asking(most + 1))
    assert raised.value.param == name


def test_a_map_is_as_long_as_the_orchestrator_allows():
    most = request_limits.MAX_LISTED_TOKENS
    assert completion_request({**ASKED, "logit_bias": dict.fromkeys(map(str, range(most)), 1)})
    with pytest.raises(ApiError, match=str(most)):
        completion_request({**ASKED, "logit_bias": dict.fromkeys(map(str, range(most + 1)), 1)})


@pytest.mark.parametrize("name", ["strategy", "predictor", "shape", "filter.scorer"])
def test_a_name_has_a_bound(name):
    at, _, field = name.rpartition(".")
    given = {field: "x" * 129}
    with pytest.raises(ApiError) as raised:
        completion_request({**ASKED, "specmesh": {at: given} if at else given})
    assert raised.value.param == f"specmesh.{name}"
