"""Errors have OpenAI's shape and statuses, and say whether to come again."""

from __future__ import annotations

import logging

import grpc
import openai
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from tests.client.conftest import chunks, refuses, started, whole_answer
from tests.gateway.conftest import never_begins

from specmesh.gateway.field_names import param_of

ASKED = {"model": "toy", "prompt": "hello"}
CODE = grpc.StatusCode


def field(name: str) -> BadRequest:
    return BadRequest(field_violations=[BadRequest.FieldViolation(field=name, description="no")])


def soon() -> RetryInfo:
    retry = RetryInfo()
    retry.retry_delay.FromMilliseconds(1500)
    return retry


@pytest.mark.parametrize(
    ("script", "error", "status", "code", "param"),
    [
        (
            refuses(CODE.INVALID_ARGUMENT, "bad", "INVALID_FIELD", field("sampling.top_k")),
            openai.BadRequestError,
            *(400, "invalid_field", "top_k"),
        ),
        (
            refuses(CODE.FAILED_PRECONDITION, "no drafter", "NO_FITTING_DRAFTER"),
            openai.BadRequestError,
            *(400, "no_fitting_drafter", "specmesh.strategy"),
        ),
        (
            refuses(CODE.FAILED_PRECONDITION, "too small", "KV_CACHE_TOO_SMALL"),
            openai.BadRequestError,
            *(400, "kv_cache_too_small", "max_tokens"),
        ),
        (
            refuses(CODE.UNAUTHENTICATED, "who?", "UNAUTHENTICATED"),
            openai.AuthenticationError,
            *(401, "invalid_api_key", None),
        ),
        (
            refuses(CODE.PERMISSION_DENIED, "not you", "WRONG_ROLE"),
            openai.InternalServerError,
            *(500, "wrong_role", None),
        ),
        (
            refuses(CODE.PERMISSION_DENIED, "not yours", "WRONG_TRUST_DOMAIN"),
            openai.InternalServerError,
            *(500, "wrong_trust_domain", None),
        ),
        (
            refuses(CODE.NOT_FOUND, "no model", "MODEL_NOT_FOUND"),
            openai.NotFoundError,
            *(404, "model_not_found", "model"),
        ),
        (
            refuses(CODE.ALREADY_EXISTS, "again", "REQUEST_ID_REUSED"),
            openai.ConflictError,
            *(409, "request_id_reused", "specmesh.request_id"),
        ),
        (
            refuses(CODE.RESOURCE_EXHAUSTED, "full", "OVERLOADED", soon()),
            openai.RateLimitError,
            *(429, "overloaded", None),
        ),
        (
            refuses(CODE.FAILED_PRECONDITION, "broke", "REQUEST_BREAKS_REPLICAS"),
            openai.InternalServerError,
            *(500, "request_breaks_replicas", None),
        ),
        (
            refuses(CODE.UNAVAILABLE, "none up", "NO_VERIFIER"),
            openai.InternalServerError,
            *(503, "no_verifier", None),
        ),
        (
            refuses(CODE.DEADLINE_EXCEEDED, "late", "DEADLINE"),
            openai.InternalServerError,
            *(504, "deadline", None),
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_meshs_errors_have_openais_statuses(
    gateway, orchestrator, script, error, status, code, param, stream
):
    orchestrator.generate_scripts = [script]
    with pytest.raises(error) as raised:
        await gateway.openai.completions.create(**ASKED, stream=stream)
    assert (raised.value.status_code, raised.value.code) == (status, code)
    assert raised.value.param == param
    assert raised.value.request_id


@pytest.mark.parametrize(
    ("feature", "given", "param"),
    [
        ("LOGIT_PROCESSING", {"top_k": 3, "min_p": 0.0, "min_tokens": 2}, "min_tokens"),
        ("LOGIT_PROCESSING", {"specmesh": {"typical_p": 0.5}}, "specmesh.typical_p"),
        ("LOGIT_PROCESSING", {}, None),  # what the model's author recommends
        ("NODE_LOGPROBS", {}, "echo"),
    ],
)
async def test_a_feature_that_replicas_lack_is_told_under_what_needs_it(
    gateway, orchestrator, feature, given, param
):
    lacking = ErrorInfo(domain="specmesh.dev", reason="UNSUPPORTED_FEATURE")
    lacking.metadata["feature"] = feature
    orchestrator.generate_scripts = [refuses(CODE.FAILED_PRECONDITION, "lacks", "", lacking)]
    response = await gateway.post("/v1/completions", {**ASKED, **given})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_overload_says_when_to_come_again(gateway, orchestrator):
    orchestrator.generate_scripts = [refuses(CODE.RESOURCE_EXHAUSTED, "", "OVERLOADED", soon())]
    response = await gateway.post("/v1/completions", ASKED)
    assert response.headers["retry-after"] == "2"
    assert response.headers["retry-after-ms"] == "1500"
    assert response.headers["x-should-retry"] == "true"
    assert response.json()["error"]["type"] == "rate_limit_error"


async def test_openais_client_comes_again_by_itself(open_gateway, orchestrator):
    gateway = await open_gateway(orchestrator.address, drain_seconds=0)
    orchestrator.generate_scripts = [
        refuses(CODE.RESOURCE_EXHAUSTED, "", "OVERLOADED"),
        whole_answer,
    ]
    client = gateway.openai.with_options(max_retries=1)
    assert (await client.completions.create(**ASKED)).choices


async def test_what_would_fail_again_is_not_tried_again(gateway, orchestrator):
    orchestrator.generate_scripts = [refuses(CODE.ALREADY_EXISTS, "", "REQUEST_ID_REUSED")]
    response = await gateway.post("/v1/completions", ASKED)
    assert response.headers["x-should-retry"] == "false"
    orchestrator.generate_scripts = [refuses(CODE.DEADLINE_EXCEEDED, "", "DEADLINE")]
    with pytest.raises(openai.InternalServerError):
        await gateway.openai.with_options(max_retries=5).completions.create(**ASKED)
    assert len(orchestrator.requests) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (CODE.UNAVAILABLE, "VERIFIER_LOST"),
        (CODE.UNAVAILABLE, ""),
        (CODE.INTERNAL, ""),
        (CODE.UNIMPLEMENTED, ""),
        (CODE.DEADLINE_EXCEEDED, "DEADLINE"),
    ],
)
async def test_addresses_of_the_mesh_are_for_the_log_alone(
    gateway, orchestrator, caplog, status, reason, stream
):
    caplog.set_level(logging.INFO, "specmesh.gateway")
    orchestrator.generate_scripts = [refuses(status, "10.1.2.3:50061 is lost", reason)]
    response = await gateway.post("/v1/completions", {**ASKED, "stream": stream})
    assert response.status_code >= 500
    assert "10.1.2.3" not in response.text
    assert response.json()["error"]["message"]
    (line,) = [record for record in caplog.records if record.getMessage() == "request"]
    assert "10.1.2.3" in line.detail


async def test_what_grpc_finds_too_large_is_no_reason_to_come_again(gateway, orchestrator):
    orchestrator.generate_scripts = [
        refuses(CODE.RESOURCE_EXHAUSTED, "Received message larger than max", "")
    ]
    response = await gateway.post("/v1/completions", ASKED)
    assert (response.status_code, response.headers["x-should-retry"]) == (413, "false")


@pytest.mark.parametrize("num_bytes", [17_000, 25_000, 31_000])
async def test_a_token_too_long_for_the_mesh_is_refused_each_time(gateway, orchestrator, num_bytes):
    for _ in range(5):
        told = {"authorization": "Bearer " + "t" * num_bytes}
        response = await gateway.post("/v1/completions", ASKED, **told)
        assert response.status_code == 431
        assert response.json()["error"]["code"] == "metadata_too_large"
    assert orchestrator.requests == []


async def test_a_long_trace_state_is_not_carried_on(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 2
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for length in (200, 20_000):
        state = {"traceparent": parent, "tracestate": "a=" + "b" * length}
        assert (await gateway.post("/v1/completions", ASKED, **state)).status_code == 200
    short, long = orchestrator.metadata
    assert "traceparent" in short
    assert "traceparent" in long
    assert "tracestate" in short
    assert "tracestate" not in long


async def test_the_gateways_own_limit_of_time_has_the_code_of_the_meshs(open_gateway, orchestrator):
    gateway = await open_gateway(orchestrator.address, drain_seconds=0, request_seconds=0.1)
    orchestrator.generate_scripts = [never_begins]
    response = await gateway.post("/v1/completions", ASKED)
    assert (response.status_code, response.json()["error"]["code"]) == (504, "deadline")


async def test_an_unreachable_mesh_is_a_503(open_gateway):
    gateway = await open_gateway("127.0.0.1:1")
    response = await gateway.post("/v1/completions", ASKED)
    assert response.json()["error"]["code"] == "unavailable"
    assert "127.0.0.1:1" not in response.text
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.headers["x-should-retry"] == "true"
    assert (await gateway.http.get("/healthz")).status_code == 503


async def test_a_stream_that_fails_after_its_beginning_says_so_in_the_stream(gateway, orchestrator):
    async def breaks(context):
        yield started()
        for event in chunks(0, 4):
            yield event
        async for _ in refuses(CODE.FAILED_PRECONDITION, "replaced", "TARGET_REPLACED")(context):
            pass

    orchestrator.generate_scripts = [breaks] * 2
    *_, error = await gateway.events("/v1/completions", ASKED)
    assert error["error"]["code"] == "target_replaced"
    stream = await gateway.openai.completions.create(**ASKED, stream=True)
    with pytest.raises(openai.APIError, match="cannot answer at the moment"):
        async for _ in stream:
            pass


@pytest.mark.parametrize(
    ("field", "param"),
    [
        ("sampling.temperature", "temperature"),
        ("sampling.acceptance_mode", "specmesh.acceptance_mode"),
        ("stopping.max_tokens", "max_tokens"),
        ("stopping.stop_strings[2]", "stop[2]"),
        ("stopping.stop_token_ids[3]", "stop_token_ids[3]"),
        ("stopping.ignore_end_of_text", "ignore_eos"),
        ("sampling.logit_bias[7]", "logit_bias[7]"),
        ("sampling.typical_p", "specmesh.typical_p"),
        ("sampling.grammar.choice.texts", "response_format"),
        ("speculation.filter.scorer", "specmesh.filter.scorer"),
        ("prompt", "prompt"),
        ("text", "prompt"),
        ("tokens.ids[7]", "prompt[7]"),
        ("tokens.token_ids[7]", "prompt[7]"),
        ("chat.messages[1].role", "messages[1].role"),
        ("chat.continue_final_message", "continue_final_message"),
        ("chat.template_arguments.bos_token", "chat_template_kwargs.bos_token"),
        ("token_ids[1]", "tokens[1]"),
        ("num_top_logprobs", "logprobs"),
        ("request_id", "specmesh.request_id"),
        ("something.new", "something.new"),
    ],
)
def test_fields_of_the_mesh_go_by_openais_names(field, param):
    assert param_of(field) == param


async def test_a_refusal_by_the_mesh_names_the_callers_field_in_words_too(gateway, orchestrator):
    orchestrator.generate_scripts = [
        refuses(
            CODE.INVALID_ARGUMENT,
            "stopping.max_tokens: no",
            "INVALID_FIELD",
            field("stopping.max_tokens"),
        )
    ]
    response = await gateway.post("/v1/completions", ASKED)
    assert response.json()["error"]["message"] == "'max_tokens': no"


@pytest.mark.parametrize(("stop", "param"), [("", "stop"), (["a", ""], "stop[0]")])
async def test_a_refused_stop_string_is_named_as_it_was_given(gateway, orchestrator, stop, param):
    name = "stopping.stop_strings[0]"
    orchestrator.generate_scripts = [
        refuses(CODE.INVALID_ARGUMENT, f"{name}: is empty", "INVALID_FIELD", field(name))
    ]
    response = await gateway.post("/v1/completions", {**ASKED, "stop": stop})
    error = response.json()["error"]
    assert (error["param"], error["message"]) == (param, f"{param!r}: no")


async def test_unknown_paths_and_methods_have_openais_shape(gateway):
    missing = await gateway.post("/v1/embeddings", {})
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    slash = await gateway.post("/v1/completions/", ASKED)
    assert (slash.status_code, slash.json()["error"]["code"]) == (404, "not_found")
    wrong = await gateway.http.get("/v1/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert wrong.json()["error"]["type"] == "invalid_request_error"
