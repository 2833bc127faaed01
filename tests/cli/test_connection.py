"""Where a command calls and who it is."""

import pytest
from typer.testing import CliRunner

from specmesh.cli.app import app
from specmesh.client.connections.addresses import DEFAULT_TARGET
from specmesh.client.testing import FakeMesh
from specmesh.gateway.settings import GatewaySettings
from specmesh.orchestrator.settings import OrchestratorSettings


@pytest.mark.parametrize("command", [("generate", "hi"), ("models",), ("chat",)])
def test_a_token_is_not_sent_in_clear_text(command, monkeypatch):
    monkeypatch.setenv("SPECMESH_TOKEN", "secret")
    result = CliRunner().invoke(app, [*command, "-t", "mesh.example:50051"])
    assert result.exit_code == 2
    assert "--tls-ca" in result.stderr
    assert "secret" not in result.output


def test_an_empty_token_is_none(monkeypatch):
    monkeypatch.setenv("SPECMESH_TOKEN", "")
    with FakeMesh() as mesh:
        assert CliRunner().invoke(app, ["models", "-t", mesh.address]).exit_code == 0
    assert "authorization" not in mesh.metadata[0]


@pytest.mark.parametrize("token", ["two\nlines", "schlüssel"])
@pytest.mark.parametrize("command", [("generate", "hi"), ("models",), ("chat",)])
def test_what_no_header_can_hold_is_no_token(command, token, monkeypatch):
    monkeypatch.setenv("SPECMESH_TOKEN", token)
    result = CliRunner().invoke(app, [*command, "-t", "127.0.0.1:1"])
    assert result.exit_code == 2
    assert "SPECMESH_TOKEN: a token must be printable ASCII" in result.stderr
    assert token not in result.output


def test_services_without_a_port_listen_where_their_clients_look():
    port = OrchestratorSettings.model_fields["port"].default
    assert f"127.0.0.1:{port}" == DEFAULT_TARGET
    assert GatewaySettings().targets == [DEFAULT_TARGET]
    assert GatewaySettings().port == 8000
