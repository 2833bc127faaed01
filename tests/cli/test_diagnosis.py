"""Why no orchestrator is reached: nobody listens, or certificates don't fit."""

import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from tests.ports import free_port
from typer.testing import CliRunner

from specmesh.cli.app import app
from specmesh.cli.diagnosis import diagnose
from specmesh.cli.exit_status import ExitStatus
from specmesh.client import Tls
from specmesh.client.testing import FakeMesh
from specmesh.serving.certs.folder import bearers, make


def invoke(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments)


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    """Certificates of the mesh, and a client's of another CA, by their file names."""
    folders = {}
    for name in ("mesh", "other"):
        folders[name] = tmp_path_factory.mktemp(name)
        roles = bearers("test.internal", [], [])
        make(folders[name], "test.internal", roles, timedelta(days=1), force=False)
    return folders


def credentials(folder, *, both):
    key, chain = ((folder / f"orchestrator{part}.pem").read_bytes() for part in ("-key", ""))
    return grpc.ssl_server_credentials([(key, chain)], (folder / "ca.pem").read_bytes(), both)


def client(folder, trusts):
    return Tls(
        root_certificates=trusts / "ca.pem",
        certificate_chain=folder / "client.pem",
        private_key=folder / "client-key.pem",
    )


def test_why_a_server_that_speaks_tls_is_not_reached(certs):
    mesh, other = certs["mesh"], certs["other"]
    with FakeMesh(credentials(mesh, both=False)) as fake:
        targets = [fake.address]
        for tls, said in (
            (None, "uses TLS: --tls-ca is missing"),
            (Tls(root_certificates=other / "ca.pem"), "cannot verify the certificate"),
        ):
            found = diagnose(targets, tls)
            assert said in found.message
            assert found.status is ExitStatus.DENIED
        assert diagnose(targets, Tls(root_certificates=mesh / "ca.pem")) is None


def test_why_a_client_without_the_right_certificate_is_not_let_in(certs):
    mesh, other = certs["mesh"], certs["other"]
    with FakeMesh(credentials(mesh, both=True)) as fake:
        targets = [fake.address]
        for tls, said in (
            (None, "uses TLS: --tls-ca is missing"),
            (Tls(root_certificates=mesh / "ca.pem"), "requires --tls-cert and --tls-key"),
            (client(other, trusts=mesh), "requires another --tls-cert"),
        ):
            found = diagnose(targets, tls)
            assert said in found.message
            assert found.status is ExitStatus.DENIED
        assert diagnose(targets, client(mesh, trusts=mesh)) is None


def test_a_server_in_plain_text(certs):
    tls = Tls(root_certificates=certs["mesh"] / "ca.pem")
    with FakeMesh() as fake:
        assert diagnose([fake.address], None) is None
        assert "does not use TLS" in diagnose([fake.address], tls).message


def test_nobody_listens():
    targets = [f"127.0.0.1:{free_port()}", "127.0.0.1:1"]
    found = diagnose(targets, None)
    assert found.status is ExitStatus.UNAVAILABLE
    assert found.message == (
        f"no orchestrator answers at {targets[0]} (connection refused) nor at {targets[1]}: start "
        "a mesh with 'specmesh up', or name another address with --target"
    )


def test_a_host_that_there_is_not(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    found = diagnose(["nohost.invalid:50051"], None)
    assert found.status is ExitStatus.UNAVAILABLE
    assert found.message == (
        "the host 'nohost.invalid' is not found (name or service not known): check --target"
    )


def test_plain_text_to_a_port_that_speaks_tls_has_the_status_of_certificates(certs):
    with FakeMesh(credentials(certs["mesh"], both=False)) as fake:
        result = invoke("models", "-t", fake.address)
    assert result.exit_code == ExitStatus.DENIED
    assert result.stderr == f"specmesh: {fake.address} uses TLS: --tls-ca is missing\n"


def test_a_failed_handshake_is_told_of_in_one_line(certs):
    ca = str(certs["other"] / "ca.pem")
    with FakeMesh(credentials(certs["mesh"], both=False)) as fake:
        # No fork: gRPC reads once for a process how much it is to write.
        command = [Path(sys.executable).with_name("specmesh"), "models", "-t", fake.address]
        done = subprocess.run(
            [*command, "--tls-ca", ca], capture_output=True, text=True, check=False
        )
    assert done.returncode == ExitStatus.DENIED
    (line,) = done.stderr.splitlines()
    assert "cannot verify the certificate" in line


@pytest.mark.parametrize("option", ["--tls-ca", "--token-file"])
def test_a_file_that_holds_something_else_is_refused_by_its_option(option, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"\xff\xfe nonsense\n")
    result = invoke("models", "-t", "127.0.0.1:1", option, str(file))
    assert result.exit_code == 2
    assert option in result.stderr


def test_a_key_that_does_not_fit_is_refused_by_its_option(certs):
    cert, key = certs["mesh"] / "orchestrator.pem", certs["other"] / "orchestrator-key.pem"
    result = invoke("models", "--tls-cert", str(cert), "--tls-key", str(key))
    assert result.exit_code == 2
    assert "--tls-key: must hold the certificate's key" in result.stderr
