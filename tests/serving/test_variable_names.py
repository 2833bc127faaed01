"""Variables beside those that Kubernetes puts into every container for each Service it knows."""

from __future__ import annotations

import importlib
import re

import pytest

from specmesh.serving.process.command_line import parse

ROLES = {
    "verifier": ["--backend", "empty"],
    "drafter": ["--backend", "simulated"],
    "confidence": [],
    "orchestrator": ["--verifiers", "127.0.0.1:1"],
}
"""With what each of them has all it needs."""

INJECTED = re.compile(
    r"""(?P<service>[A-Z0-9]([A-Z0-9_]*[A-Z0-9])?)_  # a DNS label: no hyphen at its end
    (SERVICE_HOST | SERVICE_PORT(_\w+)? | PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)""",
    re.VERBOSE,
)


def settings_of(role):
    module = importlib.import_module(f"specmesh.{role}.__main__")
    return getattr(module, f"{role.capitalize()}Settings")


def parsed(role, *argv):
    return parse(settings_of(role), [*ROLES[role], *argv], f"specmesh {role}")


def refusal(role, capsys, *argv):
    with pytest.raises(SystemExit) as ended:
        parsed(role, *argv)
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()


def service(name, port=50051, address="10.0.0.1"):
    """What Kubernetes injects for a Service of this name."""
    label = name.upper().replace("-", "_")
    tcp = f"{label}_PORT_{port}_TCP"
    return {
        f"{label}_SERVICE_HOST": address,
        f"{label}_SERVICE_PORT": str(port),
        f"{label}_SERVICE_PORT_GRPC": str(port),
        f"{label}_PORT": f"tcp://{address}:{port}",
        tcp: f"tcp://{address}:{port}",
        f"{tcp}_PROTO": "tcp",
        f"{tcp}_PORT": str(port),
        f"{tcp}_ADDR": address,
    }


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    monkeypatch.delenv("REDIS_URL", raising=False)


@pytest.mark.parametrize("role", ROLES)
def test_services_named_as_the_roles_and_redis_change_nothing(role, monkeypatch):
    before = parsed(role, "--name", "one")
    for name in ("redis", "specmesh", "specmesh-target", *(f"specmesh-{each}" for each in ROLES)):
        for variable, value in service(name).items():
            assert INJECTED.fullmatch(variable)
            monkeypatch.setenv(variable, value)
    assert parsed(role, "--name", "one") == before


@pytest.mark.parametrize("role", ROLES)
def test_no_service_can_be_named_so_that_it_sets_a_variable(role, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as ended:
        parsed(role, "--help")
    assert ended.value.code == 0
    said = capsys.readouterr().out
    (prefix,) = re.findall(r"(\w+)PORT for --port", said)
    assert prefix == f"SPECMESH_{role.upper()}__"
    variables = re.findall(r"\[env var: (\w+)\]", said)
    variables += [prefix + name.upper() for name in settings_of(role).model_fields]
    assert ("REDIS_URL" in variables) == (role != "confidence")  # which alone stores nothing
    known = ("SPECMESH_TARGET", "OTEL_EXPORTER_OTLP_ENDPOINT")
    assert not [each for each in (*variables, *known) if INJECTED.fullmatch(each)]


@pytest.mark.parametrize(
    ("field", "value"),
    [("port", "tcp://10.0.0.1:50051"), ("verifiers", "10.0.0.2:1,tcp://10.0.0.1:50051")],
)
def test_a_value_such_as_kubernetes_injects_is_refused_by_name(field, value, monkeypatch, capsys):
    variable = f"SPECMESH_ORCHESTRATOR__{field.upper()}"
    monkeypatch.setenv(variable, value)
    monkeypatch.setitem(ROLES, "orchestrator", [] if field == "verifiers" else ["--verifiers=a:1"])
    (line,) = refusal("orchestrator", capsys)
    assert line.startswith(f"specmesh orchestrator: error: --{field} ({variable}): ")
    assert line.endswith("looks like a variable that Kubernetes injects for a Service")


@pytest.mark.parametrize("name", ["SPECMESH_VERIFIER_MAX_QUEUE", "specmesh_verifier_max_queue"])
def test_a_name_of_old_is_not_passed_over_in_silence(name, monkeypatch, capsys):
    monkeypatch.setenv(name, "5")
    assert refusal("verifier", capsys) == [
        "specmesh verifier: error: SPECMESH_VERIFIER_MAX_QUEUE has been renamed to "
        "SPECMESH_VERIFIER__MAX_QUEUE"
    ]
    assert parsed("drafter").max_queue == 256


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("SPECMESH_VERIFIER__MODLE", "; is SPECMESH_VERIFIER__MODEL meant?"),
        ("specmesh_verifier__redis_url", "; is REDIS_URL meant?"),
        ("SPECMESH_VERIFIER__XYZZY", ""),
    ],
)
def test_a_variable_that_sets_nothing_is_refused_with_what_may_be_meant(
    name, told, monkeypatch, capsys
):
    monkeypatch.setenv(name, "5")
    said = f"specmesh verifier: error: {name.upper()} is no setting{told}"
    assert refusal("verifier", capsys) == [said]
    parsed("drafter")


def test_a_port_of_old_is_told_from_one_that_kubernetes_injects(monkeypatch, capsys):
    monkeypatch.setenv("SPECMESH_VERIFIER_PORT", "50061")
    (line,) = refusal("verifier", capsys)
    assert "SPECMESH_VERIFIER__PORT" in line
    monkeypatch.setenv("SPECMESH_VERIFIER_PORT", "tcp://10.0.0.1:50061")
    assert parsed("verifier").port == 0


def test_help_is_given_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("SPECMESH_VERIFIER_MAX_QUEUE", "5")
    monkeypatch.setenv("SPECMESH_VERIFIER__PORT", "tcp://10.0.0.1:50061")
    with pytest.raises(SystemExit) as ended:
        parsed("verifier", "--help")
    assert ended.value.code == 0
