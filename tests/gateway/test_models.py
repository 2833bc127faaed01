"""GET /v1/models, the names under which the mesh's model can be asked for, and GET /version."""

from __future__ import annotations

import importlib.metadata

import openai
import pytest
from tests.client.conftest import FakeOrchestrator, whole_answer

from specmesh.v1 import served_model_pb2

CONTEXT_TOKENS = 1024
CHATTED = {"messages": [{"role": "user", "content": "hello"}]}


class OfOneModel(FakeOrchestrator):
    """Serves one model, as real orchestrators do."""

    async def ListModels(self, request, context):  # noqa: N802
        model = served_model_pb2.ServedModel(num_verifiers=1)
        model.target.name, model.target.context_tokens = "toy", CONTEXT_TOKENS
        return served_model_pb2.ListModelsResponse(models=[model])


@pytest.fixture
async def orchestrator(serve):
    return await serve(OfOneModel())


@pytest.fixture
async def named(open_gateway, orchestrator):
    """A gateway whose model has further names."""
    return await open_gateway(orchestrator.address, served_model_name="gpt-4, org/chat, toy")


async def test_a_model_tells_the_length_of_its_context_where_vllm_does(gateway):
    (model,) = (await gateway.openai.models.list()).data
    told = model.model_extra
    assert (told["max_model_len"], told["root"], told["parent"]) == (CONTEXT_TOKENS, "toy", None)
    assert told["specmesh"]["context_tokens"] == CONTEXT_TOKENS


async def test_further_names_are_listed_and_found(named):
    models = (await named.openai.models.list()).data
    assert [model.id for model in models] == ["toy", "gpt-4", "org/chat"]
    assert {model.model_extra["root"] for model in models} == {"toy"}
    found = await named.openai.models.retrieve("org/chat")
    assert (found.id, found.model_extra["root"]) == ("org/chat", "toy")
    with pytest.raises(openai.NotFoundError):
        await named.openai.models.retrieve("gpt-5")


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/completions", {"prompt": "hello"}),
        ("/v1/chat/completions", CHATTED),
        ("/v1/responses", {"input": "hello"}),
    ],
)
async def test_an_answer_has_the_name_that_was_asked_for(named, orchestrator, path, asked):
    for name, in_mesh in (("gpt-4", ""), ("toy", ""), ("other", "other")):
        orchestrator.generate_scripts = [whole_answer]
        answer = await named.post(path, {**asked, "model": name})
        assert answer.json()["model"] == name
        assert orchestrator.requests[-1].model == in_mesh


async def test_a_stream_has_the_name_that_was_asked_for(named, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    *parts, _ = await named.events("/v1/completions", {"model": "gpt-4", "prompt": "hello"})
    assert {part["model"] for part in parts} == {"gpt-4"}


async def test_a_mesh_of_several_models_has_no_name_for_the_one(open_gateway, serve):
    orchestrator = await serve(FakeOrchestrator())
    gateway = await open_gateway(orchestrator.address, served_model_name="gpt-4")
    assert [each.id for each in (await gateway.openai.models.list()).data] == ["toy", "other"]


async def test_the_version_is_that_of_the_package(gateway):
    told = await gateway.http.get("/version")
    assert told.json() == {"version": importlib.metadata.version("specmesh")}
