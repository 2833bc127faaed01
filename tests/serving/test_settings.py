"""Flags, environment and defaults."""

from __future__ import annotations

import pytest
from pydantic import Field, ValidationError
from pydantic_settings import SettingsConfigDict

from specmesh.serving.process.command_line import parse
from specmesh.serving.settings import RedisSettings, ServerSettings


class VerifierSettings(RedisSettings, ServerSettings):
    """Serves a target."""

    model_config = SettingsConfigDict(env_prefix="SPECMESH_VERIFIER__")

    max_queue: int = Field(64, ge=1, description="calls that may wait")
    warm_up: bool = Field(True, description="run a forward first")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("REDIS_URL", raising=False)


def parsed(*argv: str) -> VerifierSettings:
    return parse(VerifierSettings, argv, "specmesh-verifier")


def test_defaults_listen_on_loopback_on_a_free_port():
    settings = parsed()
    assert (settings.host, settings.port, settings.redis_url) == ("127.0.0.1", 0, None)
    assert settings.name


def test_flag_beats_environment_beats_default(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPECMESH_VERIFIER__MAX_QUEUE", "5")
    assert parsed().max_queue == 5
    assert parsed("--max-queue", "6").max_queue == 6
    monkeypatch.delenv("SPECMESH_VERIFIER__MAX_QUEUE")
    assert parsed().max_queue == 64


def test_boolean_is_a_flag_of_its_own():
    assert parsed("--no-warm-up").warm_up is False


@pytest.mark.parametrize(
    ("address", "at"),
    [
        ("9464", ("10.0.0.1", 9464)),
        ("0", ("10.0.0.1", 0)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        ("localhost:1", ("localhost", 1)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_metrics_are_at_a_host_and_a_port_or_at_the_services_host(address, at):
    assert parsed("--host", "10.0.0.1", "--metrics-address", address).metrics_at == at
    assert parsed().metrics_at is None


@pytest.mark.parametrize("address", ["", "h", "h:", ":1", "h:65536", "::1:1", "h:-1", "h:1:2", "٣"])
def test_metrics_at_no_address_are_refused(address, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        parsed(f"--metrics-address={address}")
    assert ended.value.code == 2
    assert "--metrics-address (SPECMESH_VERIFIER__METRICS_ADDRESS)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--port", "7", "--metrics-address", "7"), "--port and --metrics-address"),
        (("--port", "7", "--probe-address", "127.0.0.1:7"), "--port and --probe-address"),
        (("--metrics-address", "7", "--probe-address", "7"), "--metrics-address and --probe-"),
    ],
)
def test_what_needs_ports_of_its_own_is_refused_the_same(given, told, capsys):
    with pytest.raises(SystemExit) as ended:
        parsed(*given)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"specmesh-verifier: error: {told}" in said
    assert "need different ports, not both 7" in said


def test_ports_of_other_hosts_and_any_free_ones_may_be_equal():
    parsed("--port", "7", "--metrics-address", "10.0.0.1:7")
    parsed("--port", "0", "--metrics-address", "0", "--probe-address", "0")


def test_redis_url_has_no_prefix(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REDIS_URL", "redis://right")
    assert parsed().redis_url == "redis://right"
    assert parsed("--redis-url", "unix:///run/redis.sock").redis_url == "unix:///run/redis.sock"
    assert VerifierSettings(redis_url="rediss://given").redis_url == "rediss://given"


@pytest.mark.parametrize(
    "url", ["redis://:s3cret@host", "redis://user:s3cret@host/0", "redis://host?password=s3cret"]
)
def test_a_password_is_taken_from_the_environment_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str
):
    for argv in (("--redis-url", url), (f"--redis-url={url}",)):
        with pytest.raises(SystemExit):
            parsed(*argv)
        said = capsys.readouterr().err
        assert "environment" in said
        assert "s3cret" not in said
    monkeypatch.setenv("REDIS_URL", url)
    assert parsed().redis_url == url


def test_wrong_values_are_all_named_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("SPECMESH_VERIFIER__PORT", "http")
    monkeypatch.setenv("REDIS_URL", "reds://:password@host")
    with pytest.raises(SystemExit) as ended:
        parsed("--max-queue", "0")
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    said = "\n".join(sorted(lines))
    assert "specmesh-verifier: error: --port (SPECMESH_VERIFIER__PORT): " in said
    assert "specmesh-verifier: error: --redis-url (REDIS_URL): " in said
    assert "--max-queue (SPECMESH_VERIFIER__MAX_QUEUE): Input should be greater" in said
    assert "password" not in said


def test_unknown_flag_exits_2(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        parsed("--max-que", "3")
    assert ended.value.code == 2
    assert "--max-que" in capsys.readouterr().err


def test_help_describes_every_field(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as ended:
        parsed("--help")
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "Usage: specmesh-verifier [OPTIONS]" in said
    for field in VerifierSettings.model_fields.values():
        assert field.description in said
    assert "[default: 64]" in said
    assert "[env var: REDIS_URL]" in said
    assert "SPECMESH_VERIFIER__PORT for --port" in said


def test_settings_do_not_change_once_read():
    with pytest.raises(ValidationError):
        parsed().port = 1


class GatewaySettings(ServerSettings):
    """Needs to be told something."""

    model_config = SettingsConfigDict(env_prefix="SPECMESH_GATEWAY__")

    mesh: str = Field(description="whom to call")


def test_what_is_required_is_asked_for_by_its_option(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parse(GatewaySettings, (), "specmesh serve gateway")
    said = "specmesh serve gateway: error: --mesh (SPECMESH_GATEWAY__MESH): must be given\n"
    assert capsys.readouterr().err == said
