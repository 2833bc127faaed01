"""Who may call, what the mesh is shown, and what the log says."""

from __future__ import annotations

import base64
import hashlib
import json
import logging

import grpc
import openai
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.client.conftest import FakeOrchestrator, refuses, whole_answer
from tests.gateway.wire import until

from specmesh.gateway.__main__ import make_server
from specmesh.gateway.http.record import Record
from specmesh.gateway.settings import GatewaySettings
from specmesh.serving.identity.on_behalf import CALLER
from specmesh.serving.startup import CannotStart

ASKED = {"model": "toy", "prompt": "hello"}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def tokens(tmp_path):
    """A file of the tokens alpha, of alice, and beta, of bob."""
    file = tmp_path / "tokens.json"
    listed = [
        {"name": name, "sha256": hashlib.sha256(token.encode()).hexdigest()}
        for name, token in (("alice", "alpha"), ("bob", "beta"))
    ]
    file.write_text(json.dumps(listed))
    return file


def bearer(token):
    return {"authorization": f"Bearer {token}"}


async def test_a_callers_token_is_passed_on_to_the_mesh(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 3
    await gateway.post("/v1/completions", ASKED, **bearer("alpha"))
    await gateway.post("/v1/completions", ASKED, **bearer("beta"))
    await gateway.post("/v1/completions", ASKED)
    shown = [metadata.get("authorization") for metadata in orchestrator.metadata]
    assert shown == ["Bearer alpha", "Bearer beta", None]


@pytest.mark.parametrize("authorization", ["Bearer", "bearer"])
async def test_an_empty_token_is_none(gateway, orchestrator, authorization):
    orchestrator.generate_scripts = [whole_answer]
    # Clients without a key send it so, lm-eval among them.
    response = await gateway.post("/v1/completions", ASKED, authorization=authorization)
    assert response.status_code == 200
    assert "authorization" not in orchestrator.metadata[0]


async def test_several_spaces_before_a_token_are_one(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    await gateway.post("/v1/completions", ASKED, authorization="bearer   alpha")
    assert orchestrator.metadata[0]["authorization"] == "Bearer alpha"


@pytest.mark.parametrize("authorization", ["Basic YTpi", "Basic", "Bearer a\tb"])
async def test_an_authorization_that_is_no_bearer_token_is_refused(
    gateway, orchestrator, authorization
):
    response = await gateway.post("/v1/completions", ASKED, authorization=authorization)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert orchestrator.requests == []


async def test_with_tokens_of_its_own_the_gateway_decides(open_gateway, orchestrator, tokens):
    orchestrator.generate_scripts = [whole_answer]
    gateway = await open_gateway(orchestrator.address, tokens=tokens)
    with pytest.raises(openai.AuthenticationError):
        await gateway.openai.completions.create(**ASKED)
    with pytest.raises(openai.AuthenticationError):
        await gateway.openai.models.list()
    assert orchestrator.requests == []
    known = gateway.openai.with_options(api_key="alpha")
    await known.completions.create(**ASKED)
    assert "authorization" not in orchestrator.metadata[0]
    assert (await gateway.http.get("/healthz")).status_code == 200


async def test_the_mesh_is_shown_the_gateways_own_token(
    open_gateway, orchestrator, tokens, tmp_path
):
    orchestrator.generate_scripts = [whole_answer]
    own = tmp_path / "token"
    own.write_text("secret\n")
    gateway = await open_gateway(orchestrator.address, tokens=tokens, mesh_token_file=own)
    await gateway.post("/v1/completions", ASKED, **bearer("beta"))
    assert orchestrator.metadata[0]["authorization"] == "Bearer secret"


async def test_the_mesh_is_told_for_whom_a_gateway_calls(open_gateway, orchestrator, tokens):
    orchestrator.generate_scripts = [whole_answer] * 3
    gateway = await open_gateway(orchestrator.address, tokens=tokens)
    for token in ("alpha", "beta"):
        # What a caller says of itself in a header is no part of it.
        claimed = {CALLER: base64.b64encode(b"token:admin").decode()}
        sent = await gateway.post("/v1/completions", ASKED, **bearer(token), **claimed)
        assert sent.status_code == 200
    told = [metadata.get(CALLER) for metadata in orchestrator.metadata]
    assert told == [b"token:alice", b"token:bob"]


async def test_a_gateway_that_knows_nobody_names_nobody(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 2
    await gateway.post("/v1/completions", ASKED, **bearer("alpha"))
    await gateway.post("/v1/completions", ASKED)
    assert all(CALLER not in metadata for metadata in orchestrator.metadata)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, "NOT_A_GATEWAY"),
        (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"),
    ],
)
async def test_a_mesh_that_does_not_know_the_gateway_is_no_fault_of_the_caller(
    open_gateway, orchestrator, tokens, code, reason
):
    orchestrator.generate_scripts = [refuses(code, "who?", reason)]
    gateway = await open_gateway(orchestrator.address, tokens=tokens)
    response = await gateway.post("/v1/completions", ASKED, **bearer("alpha"))
    assert (response.status_code, response.json()["error"]["code"]) == (500, reason.lower())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"orchestrators": "mesh.example:1"}, "mesh.example:1 is not loopback: give --mesh-ca"),
        ({"host": "0.0.0.0"}, "not loopback"),
        ({"tokens": "/nowhere"}, "nowhere"),
    ],
)
async def test_what_would_give_secrets_away_does_not_start(settings, said):
    async def start():
        await make_server(GatewaySettings(port=0, **settings)).listen()

    with pytest.raises(CannotStart, match=said):
        await start()


@pytest.mark.parametrize("stream", [False, True])
async def test_the_log_counts_a_prompt_once_as_usage_does(gateway, orchestrator, caplog, stream):
    caplog.set_level(logging.INFO, "specmesh.gateway")
    orchestrator.generate_scripts = [whole_answer] * 6
    await gateway.post("/v1/completions", {**ASKED, "prompt": ["a", "b"], "n": 3, "stream": stream})
    # The log follows the last byte of a stream.
    await until(lambda: any(each.getMessage() == "request" for each in caplog.records))
    (line,) = [record for record in caplog.records if record.getMessage() == "request"]
    assert (line.prompt_tokens, line.output_tokens) == (2 * 3, 6 * 12)


async def test_a_request_id_is_taken_over_or_drawn_and_logged(gateway, orchestrator, caplog):
    caplog.set_level(logging.INFO, "specmesh.gateway")
    orchestrator.generate_scripts = [whole_answer] * 3
    response = await gateway.post("/v1/completions", ASKED, **{"x-request-id": "mine"})
    assert response.headers["x-request-id"] == "mine"
    line = next(record for record in caplog.records if record.getMessage() == "request")
    assert (line.request_id, line.status, line.outcome) == ("mine", 200, "ok")
    assert (line.path, line.model, line.sessions) == ("/v1/completions", "toy", ["s-1"])
    assert (line.prompt_tokens, line.output_tokens) == (3, 12)
    assert line.duration_ms > 0
    drawn = [
        (await gateway.post("/v1/completions", ASKED, **given)).headers["x-request-id"]
        for given in ({}, {"x-request-id": "x" * 129})
    ]
    assert len({*drawn, "mine"}) == 3
    assert all(len(each) == 32 for each in drawn)


async def test_the_log_says_what_was_refused(gateway, orchestrator, caplog):
    caplog.set_level(logging.INFO, "specmesh.gateway")
    await gateway.post("/v1/completions", {**ASKED, "n": 0})
    (line,) = [record for record in caplog.records if record.getMessage() == "request"]
    assert (line.outcome, line.status) == ("error", 400)
    assert (line.error, line.param) == ("invalid_value", "n")


async def test_the_callers_trace_goes_on_in_the_mesh(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    await gateway.post("/v1/completions", ASKED, traceparent=TRACE)
    assert TRACE.split("-")[1] in orchestrator.metadata[0]["traceparent"]


async def test_models_are_those_of_the_mesh(gateway):
    models = (await gateway.openai.models.list()).data
    assert [model.id for model in models] == ["toy", "other"]
    assert {model.object for model in models} == {"model"}
    model = await gateway.openai.models.retrieve("other")
    assert model.model_extra["specmesh"]["strategies"] == ["autoregressive"]
    with pytest.raises(openai.NotFoundError) as raised:
        await gateway.openai.models.retrieve("org/none")
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")


async def test_an_orchestrator_that_asks_who_calls_is_there(open_gateway, serve):
    class Guarded(FakeOrchestrator):
        async def ListModels(self, request, context):  # noqa: N802
            async for _ in refuses(grpc.StatusCode.UNAUTHENTICATED, "who?", "UNAUTHENTICATED")(
                context
            ):
                pass

    gateway = await open_gateway((await serve(Guarded())).address)
    for path in ("/healthz", "/health"):
        assert (await gateway.http.get(path)).status_code == 200
    with pytest.raises(openai.AuthenticationError):
        await gateway.openai.models.list()


def series(names_of_methods):
    """The series of ``http.server.request.duration`` that requests with these methods make."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    histogram = provider.get_meter("test").create_histogram("duration")
    for name in names_of_methods:
        histogram.record(1.0, {"method": Record("id", name, "/").known_method})
    (resource,) = reader.get_metrics_data().resource_metrics
    return {
        point.attributes["method"]
        for point in resource.scope_metrics[0].metrics[0].data.data_points
    }


def test_invented_methods_are_one_series():
    invented = [f"M{number}" for number in range(3000)]
    assert series(["GET", *invented, "get"]) == {"GET", "_OTHER"}


async def test_an_unusual_method_is_told_as_it_was_in_the_log_alone(gateway, caplog):
    caplog.set_level(logging.DEBUG, "specmesh.gateway")
    response = await gateway.http.request("PROPFIND", "/v1/models")
    assert response.status_code == 405
    (line,) = [record for record in caplog.records if record.getMessage() == "request"]
    assert line.method == "PROPFIND"
    response = await gateway.http.request("INVENTED", "/v1/models")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_http")
