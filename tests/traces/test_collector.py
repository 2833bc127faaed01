"""The collector as a process, fed by real exporters and by plain HTTP."""

import gzip
import json
import signal
import ssl
import subprocess
import sys
import time
from datetime import timedelta
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import certifi
import grpc
import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.traces.otlp import answer

from specmesh.serving.certs.folder import bearers, make
from specmesh.serving.telemetry.exporters import span_exporter
from specmesh.traces.formats.otlp import to_line
from specmesh.traces.store.query import Query
from specmesh.traces.store.reader import StoreReader

DEADLINE_S = 20.0
MODULE = (sys.executable, "-m", "specmesh.traces.collector")
GZIPPED = {"content_encoding": "gzip"}
EMPTY = gzip.compress(b"{}", mtime=0)
COMMAND = (*MODULE, "--grpc-port", "0", "--http-port", "0")


class Collector:
    """Runs ``specmesh.traces.collector`` and reads what it stores."""

    def __init__(self, store, *flags):
        self.store = store
        self.process = subprocess.Popen(
            (*COMMAND, "--store", str(store), "--settle-seconds", "0.2", *flags),
            stderr=subprocess.PIPE,
            text=True,
        )
        lines = map(json.loads, self.process.stderr)
        self.said = next(line for line in lines if "address" in line)

    def post(self, body, media, **headers):
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = Request(
            f"http://{self.said['http']}/v1/traces",
            data=body,
            headers={"content-type": media, **names},
        )
        with urlopen(request, timeout=5) as response:
            return response.status, response.headers["content-type"], response.read()

    def stored(self, count):
        """The ids of what is stored, once there are ``count``."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            with StoreReader(self.store) as reader:
                found = {int(each.trace_id, 16) for each in reader.select(Query(limit=100))}
            if len(found) >= count:
                return found
            time.sleep(0.05)
        raise AssertionError(f"stored only {found}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self.process.stderr.close()


@pytest.fixture(scope="module")
def collector(tmp_path_factory):
    running = Collector(tmp_path_factory.mktemp("store") / "traces.sqlite", "--keep", "all")
    yield running
    running.stop()


def export(endpoint, *, failed=False):
    provider = TracerProvider(resource=Resource({"service.instance.id": "v-1"}))
    exporter = OTLPSpanExporter(endpoint=f"http://{endpoint}", insecure=True)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    span = provider.get_tracer("test").start_span("root")
    if failed:
        span.set_status(trace.StatusCode.ERROR)
    span.end()
    provider.shutdown()
    return span.get_span_context().trace_id


def test_it_takes_spans_by_every_way_of_otlp(collector):
    wanted = {export(collector.said["address"])}
    message = ExportTraceServiceRequest(resource_spans=answer(1)).SerializeToString()
    assert collector.post(message, "application/x-protobuf") == (200, "application/x-protobuf", b"")
    message = ExportTraceServiceRequest(resource_spans=answer(2)).SerializeToString()
    collector.post(gzip.compress(message), "application/x-protobuf", content_encoding="gzip")
    text = to_line(answer(3)).encode()
    assert collector.post(text, "application/json; charset=utf-8")[:2] == (200, "application/json")
    text = to_line(answer(4)).encode()
    collector.post(gzip.compress(text), "application/json", content_encoding="gzip")
    parts = [ExportTraceServiceRequest(resource_spans=answer(number)) for number in (5, 6)]
    members = b"".join(gzip.compress(part.SerializeToString()) for part in parts)
    collector.post(members, "application/x-protobuf", content_encoding="GZIP")
    assert collector.stored(7) == wanted | {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    ("body", "media", "headers", "status", "said"),
    [
        (b"{", "application/json", {}, 400, "not JSON"),
        (
            b'{"resourceSpans": [{"scopeSpans": 3}]}',
            "application/json",
            {},
            400,
            "is not an Export",
        ),
        (b"\xff\xff", "application/x-protobuf", {}, 400, "is not an ExportTraceServiceRequest"),
        pytest.param(b"[" * 100_000, "application/json", {}, 400, "too deeply", id="nested"),
        (b"x", "text/plain", {}, 415, "text/plain"),
        (b"x" * 9, "application/json", GZIPPED, 400, "not gzip"),
        (EMPTY[:-1], "application/json", GZIPPED, 400, "truncated"),
        (EMPTY + b"no", "application/json", GZIPPED, 400, "not gzip"),
        (b"x", "application/json", {"content_encoding": "br"}, 415, "'br'"),
    ],
)
def test_what_it_cannot_read_is_refused_with_the_reason(
    collector, body, media, headers, status, said
):
    with pytest.raises(HTTPError) as refused:
        collector.post(body, media, **headers)
    with refused.value as answered:
        assert answered.code == status
        assert said in answered.read().decode()


@pytest.mark.parametrize("num_members", [1, 2])
def test_a_small_body_cannot_become_a_huge_one(collector, num_members):
    bomb = gzip.compress(bytes(70 * 1024 * 1024 // num_members)) * num_members
    with pytest.raises(HTTPError) as refused:
        collector.post(bomb, "application/json", content_encoding="gzip")
    with refused.value as answered:
        assert answered.code == 413


def test_with_a_ratio_of_nothing_failed_traces_are_kept_and_sigterm_loses_none(tmp_path):
    collector = Collector(tmp_path / "t.sqlite", "--ratio", "0", "--settle-seconds", "60")
    export(collector.said["address"])  # the first, for its rarity
    dropped = export(collector.said["address"])
    failed = export(collector.said["address"], failed=True)
    assert collector.stop() == 0
    found = collector.stored(2)
    assert failed in found
    assert dropped not in found


def test_what_it_cannot_start_with_is_said(tmp_path, collector):
    taken = collector.said["address"].rpartition(":")[2]
    other = tmp_path / "text"
    other.write_text("x" * 2000)
    for flags, said in {
        ("--grpc-port", taken): "cannot listen",
        ("--store", str(other)): "not a database",
    }.items():
        ended = subprocess.run(
            (*COMMAND, "--store", str(tmp_path / "new"), *flags),
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert ended.returncode == 1
        *_, line = ended.stderr.splitlines()  # gRPC may log a line of its own
        assert said in json.loads(line)["reason"]


def test_over_tls_it_takes_spans_from_those_whom_its_ca_has_signed(tmp_path, monkeypatch):
    certs = tmp_path / "certs"
    known = bearers("test.internal", (), (), {"traces": ["localhost"]})
    make(certs, "test.internal", known, timedelta(days=1), force=False)
    tls = [f"--tls-{name}={certs / file}" for name, file in TLS_FILES.items()]
    collector = Collector(tmp_path / "traces.sqlite", "--keep", "all", *tls)
    try:
        port = collector.said["address"].rpartition(":")[2]
        ca, key, chain = ((certs / TLS_FILES[name]).read_bytes() for name in ("ca", "key", "cert"))
        trusted = grpc.ssl_channel_credentials(ca, key, chain)
        sent = export_over_tls(f"localhost:{port}", trusted)
        context = ssl.create_default_context(cafile=certs / "ca.pem")
        web = f"https://localhost:{collector.said['http'].rpartition(':')[2]}/v1/traces"
        body = ExportTraceServiceRequest(resource_spans=answer(1)).SerializeToString()
        request = Request(web, data=body, headers={"content-type": "application/x-protobuf"})
        with pytest.raises(OSError, match=r"(?i)certificate required|reset|eof|closed"):
            urlopen(request, timeout=5, context=context).close()
        context.load_cert_chain(certs / "orchestrator.pem", certs / "orchestrator-key.pem")
        urlopen(request, timeout=5, context=context).close()
        assert collector.stored(2) == {sent, 1}
        # What other programs trust does not matter to exporters that are told what to trust.
        given = {"CERTIFICATE": "ca", "CLIENT_CERTIFICATE": "cert", "CLIENT_KEY": "key"}
        for name, file in given.items():
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", str(certs / TLS_FILES[file]))
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", web)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        over_http = sent_by(span_exporter())
        assert collector.stored(3) == {sent, 1, over_http}
    finally:
        collector.stop()


TLS_FILES = {"cert": "traces.pem", "key": "traces-key.pem", "ca": "ca.pem"}


def export_over_tls(endpoint, credentials):
    return sent_by(OTLPSpanExporter(endpoint=f"https://{endpoint}", credentials=credentials))


def sent_by(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    span = provider.get_tracer("test").start_span("root")
    span.end()
    provider.shutdown()
    return span.get_span_context().trace_id


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--tls-cert", "a.pem"), "go together"),
        (("--tls-ca", "a.pem"), "needs --tls-cert"),
    ],
)
def test_half_of_tls_is_refused(flags, told):
    done = subprocess.run((*COMMAND, *flags), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert told in done.stderr
