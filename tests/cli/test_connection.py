"""Where a command calls and who it is."""

import pytest
from typer.testing import CliRunner

from specmesh.cli.app import app


@pytest.mark.parametrize("command", [("generate", "hi"), ("models",), ("chat",)])
def test_a_token_is_not_sent_in_clear_text(command, monkeypatch):
    monkeypatch.setenv("SPECMESH_TOKEN", "secret")
    result = CliRunner().invoke(app, [*command, "-t", "mesh.example:50051"])
    assert result.exit_code == 2
    assert "--tls-ca" in result.stderr
    assert "secret" not in result.output
