"""What a live mesh tells Prometheus is what alerts and dashboard ask for."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio
from tests.e2e.answers import answer
from tests.e2e.processes import Process, Processes
from tests.monitoring.promql import (
    ADDED_BY_MONITOR,
    ADDED_BY_PROMETHEUS,
    grouped_by,
    queries,
    selected,
)
from tests.scraping import Scraped, scrape

from specmesh.client import AsyncClient, InvalidRequest, Tls
from specmesh.serving.certs.folder import bearers, make

pytestmark = pytest.mark.asyncio(loop_scope="module")

GENERATE = "specmesh.v1.GenerationService/Generate"
VERIFY = "specmesh.mesh.v1alpha1.VerifierService/Verify"
ROLES = ("orchestrator", "verifier", "drafter", "confidence", "gateway")
CERTIFICATE = (("cert", ""), ("key", "-key"))
AFTER_TROUBLE = {
    "specmesh_sessions_not_resumable_total",
    "specmesh_requests_resumed_total",
    "specmesh_task_failures_total",
    "specmesh_verify_hedges_total",
    "specmesh_replica_ejections_total",
    "specmesh_quarantined_calls_total",
    "specmesh_filter_fallbacks_total",
    "specmesh_store_refusals_total",
}
"""What a mesh in good health has nothing to tell of."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(tmp_path_factory):
    """The metrics of each process of a mesh and its gateway after some answers, by role."""
    certs = tmp_path_factory.mktemp("certs")
    certified = bearers("test.internal", (), ())
    make(certs, "test.internal", certified, timedelta(days=1), force=False)
    with Processes() as processes:
        yield await asyncio.wait_for(_told(processes, certs), 120)


async def _told(processes: Processes, certs: Path) -> Mapping[str, Scraped]:
    port = [f"--tls-{part}={certs}/orchestrator{end}.pem" for part, end in CERTIFICATE]
    _, redis_url = await asyncio.to_thread(processes.redis)
    flags = ("--redis-url", redis_url, "--metrics-address", "0")
    verifier, drafter = processes.verifier(*flags), processes.drafter(*flags)
    confidence = processes.service("confidence", "--metrics-address", "0")
    orchestrator = await asyncio.to_thread(
        processes.orchestrator, [verifier], [drafter], *flags, *port, confidence=[confidence]
    )
    address = await asyncio.to_thread(lambda: orchestrator.address)
    async with AsyncClient(address, tls=Tls(root_certificates=certs / "ca.pem")) as client:
        for strategy in ("speculative", "filter"):
            await answer(client, "import os", temperature=0, max_tokens=24, strategy=strategy)
        with pytest.raises(InvalidRequest):
            await answer(client, "import os", temperature=-1)
    trust = (f"--mesh-ca={certs}/ca.pem", "--mesh-trust-domain", "test.internal")
    to_mesh = ("--orchestrators", address, *trust, "--metrics-address", "0")
    gateway = processes.service("gateway", *to_mesh)
    await _asked(await asyncio.to_thread(lambda: gateway.address))
    started = dict(zip(ROLES, (orchestrator, verifier, drafter, confidence, gateway), strict=True))
    return {role: await scrape(await _metrics_of(process)) for role, process in started.items()}


async def _asked(gateway: str) -> None:
    """Ask a gateway for an answer in parts, and whether it is ready."""
    async with httpx2.AsyncClient(base_url=f"http://{gateway}", timeout=30) as client:
        asked = {"model": "pycode-12m", "prompt": "import os", "max_tokens": 8, "stream": True}
        (await client.post("/v1/completions", json=asked)).raise_for_status()
        (await client.get("/healthz")).raise_for_status()


async def _metrics_of(process: Process) -> str:
    return str((await asyncio.to_thread(process.wait_event, "metrics"))["address"])


async def test_alerts_and_dashboard_ask_for_what_a_live_mesh_says(told):
    labels = defaultdict(set)
    for scraped in told.values():
        for sample in scraped.samples:
            labels[sample.name] |= sample.labels.keys()
    for where, expr in queries().items():
        for name, selecting in selected(expr):
            if name not in AFTER_TROUBLE:
                assert name in labels, where
                missing = selecting - ADDED_BY_PROMETHEUS - labels[name]
                assert missing <= {"error_type"}, (where, name)  # nothing has failed there
    known = ADDED_BY_PROMETHEUS.union(ADDED_BY_MONITOR, *labels.values())
    trouble = {"specmesh_ejection_reason", "specmesh_resumed_from", "specmesh_store_command"}
    for where, expr in queries().items():
        assert grouped_by(expr) <= known | trouble, where


async def test_orchestrator_tells_of_requests_and_of_its_mesh(told):
    said = told["orchestrator"]
    duration = "gen_ai_server_request_duration_seconds_count"
    for strategy in ("speculative", "filter"):
        (sample,) = said.all(duration, specmesh_strategy=strategy)
        assert sample.value == 1
        assert sample.labels["server_address"] == "127.0.0.1"
        assert int(sample.labels["server_port"]) > 0
    assert said.value(duration, error_type="INVALID_ARGUMENT") == 1
    assert said.value("specmesh_requests_total", rpc_response_status_code="OK") == 3
    for role in ("verifier", "drafter", "confidence_service"):
        assert said.value("specmesh_replicas", specmesh_role=role, specmesh_state="ready") == 1
    assert said.value("specmesh_requests_running") == 0
    assert said.value("specmesh_tokens_in_flight") == 0
    assert said.value("specmesh_requests_room") >= 1
    assert said.value("specmesh_spec_decode_num_verify_calls_total") > 0
    verified = "rpc_client_call_duration_seconds_count"
    assert said.value(verified, rpc_method=VERIFY, rpc_response_status_code="OK") > 0
    # Replicas come and go, and series stay for ever.
    assert not [each for each in said.all(verified) if "server_address" in each.labels]
    appended = "db_client_operation_duration_seconds_count"
    assert said.value(appended, db_operation_name="append") >= 2


async def test_replicas_tell_of_forwards_and_of_their_cache(told):
    for role in ("verifier", "drafter"):
        said = told[role]
        assert said.value("specmesh_engine_forward_duration_seconds_count") > 0
        assert said.value("specmesh_engine_queue_limit") == 256
        assert said.value("specmesh_kv_blocks", specmesh_state="cached") > 0
        assert said.value("specmesh_kv_prefix_tokens_total") > 0
    answered = "rpc_server_call_duration_seconds_count"
    assert told["verifier"].value(answered, rpc_method=VERIFY) > 0


async def test_nothing_of_a_text_or_a_session_is_told(told):
    for role, scraped in told.items():
        labels = {
            value
            for sample in scraped.samples
            for name, value in sample.labels.items()
            if name != "specmesh_certificate_file"  # the operator's
        }
        assert not [value for value in labels if "import os" in value], role
        assert all(len(value) < 64 for value in labels), role
        assert len(scraped.samples) < 2_000, role
