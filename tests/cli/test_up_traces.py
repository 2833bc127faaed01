"""``specmesh up`` sends the traces of its processes where its options and environment say."""

import pytest
from typer.testing import CliRunner

from specmesh.cli import up
from specmesh.cli.app import app
from specmesh.cli.local.process import StartError
from specmesh.serving.telemetry.exporters import metric_exporter, span_exporter


@pytest.fixture
def started_with(monkeypatch):
    """Runs ``up`` and returns the options of the mesh that it would start."""

    def run(*arguments):
        asked = []

        def start(options, *_, **__):
            asked.append(options)
            raise StartError

        monkeypatch.setattr(up, "LocalMesh", start)
        CliRunner().invoke(app, ["up", "--port", "0", *arguments])
        return asked[0]

    return run


def exporting(exporter, options):
    """Return whether a process of a mesh with these options has the exporter."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in options.environment.items():
            patch.setenv(name, value)
        found = exporter()
    if found is not None:
        found.shutdown()
    return found is not None


@pytest.mark.parametrize(
    "variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
)
def test_traces_that_are_off_go_nowhere_also_if_the_environment_has_an_endpoint(
    started_with, monkeypatch, variable
):
    monkeypatch.setenv(variable, "http://127.0.0.1:4317")
    by_default, off = started_with(), started_with("--trace", "off")
    assert by_default.traces is off.traces is None
    assert (exporting(span_exporter, by_default), exporting(span_exporter, off)) == (True, False)


def test_metrics_go_to_their_endpoint_also_if_traces_are_off(started_with, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    assert exporting(metric_exporter, started_with("--trace", "off"))
