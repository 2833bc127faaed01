"""What an operator may list as replicas."""

from __future__ import annotations

import re

import pytest

from specmesh.orchestrator.replicas.discovery.entries import Entries, Name, join, read_entries
from specmesh.orchestrator.settings import OrchestratorSettings
from specmesh.serving.process.command_line import parse


def test_addresses_are_taken_as_they_are_and_names_are_told_by_their_scheme():
    read = read_entries("10.0.0.1:5, verifier:5,,unix:/x , dns:///verifier.mesh.svc:5,10.0.0.1:5")
    assert read == Entries(("10.0.0.1:5", "verifier:5", "unix:/x"), (Name("verifier.mesh.svc", 5),))


@pytest.mark.parametrize("entry", ["unix:/x", "unix-abstract:x", "xds:///verifier", "vsock:2:5"])
def test_address_of_another_scheme_of_grpc_is_taken_as_it_is(entry):
    assert read_entries(entry) == Entries((entry,))


@pytest.mark.parametrize(
    ("entry", "server"),
    [
        ("dns:v.test:5", None),
        ("dns:///v.test:5", None),
        ("DNS://10.0.0.53/v.test:5", ("10.0.0.53", 53)),
        ("dns://10.0.0.53:8600/v.test:5", ("10.0.0.53", 8600)),
        ("dns://::1/v.test:5", ("::1", 53)),
        ("dns://[::1]:8600/v.test:5", ("::1", 8600)),
    ],
)
def test_name_may_say_which_server_to_ask(entry, server):
    assert read_entries(entry).names == (Name("v.test", 5, server),)


@pytest.mark.parametrize("entry", ["dns://10.0.0.53/v.test:5", "dns://[::1]:8600/v.test:5"])
def test_name_is_shown_as_it_can_be_given(entry):
    (name,) = read_entries(entry).names
    assert read_entries(str(name)).names == (name,)


def test_name_that_is_an_address_needs_no_dns():
    assert read_entries("dns:///10.0.0.1:5,dns:///[::1]:5").addresses == ("10.0.0.1:5", "[::1]:5")


@pytest.mark.parametrize(
    "entry",
    [
        "dns:///v.test",
        "dns:///v.test:",
        "dns:///v.test:0",
        "dns:///v.test:65536",
        "dns:///:5",
        "dns://kube-dns/v.test:5",
        "dns://10.0.0.53:x/v.test:5",
    ],
)
def test_name_that_cannot_be_asked_for_is_refused(entry):
    with pytest.raises(ValueError, match=entry):
        read_entries(entry)


@pytest.mark.parametrize(
    "entry",
    [
        *("localhost", "localhost:", "localhost:0", "localhost:99999", "localhost:x", ":5"),
        *("http://localhost:1", "localhost:1/v1", "::1", "[::1]", "10.0.0.1"),
    ],
)
def test_address_that_cannot_be_called_is_refused(entry):
    expected = f"'{entry}' must be HOST:PORT with a port from 1 to 65535"
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        read_entries(f"10.0.0.1:5,{entry}")


@pytest.mark.parametrize(
    ("option", "listed", "told"),
    [
        ("verifiers", "localhost", "'localhost' must be HOST:PORT"),
        ("verifiers", ",", "must name at least one replica"),
        ("verifiers", "", "must name at least one replica"),
        ("drafters", "localhost:99999", "'localhost:99999' must be HOST:PORT"),
        ("confidence", "http://localhost:1", "'http://localhost:1' must be HOST:PORT"),
    ],
)
def test_list_that_is_wrong_is_refused_by_its_option(option, listed, told, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(OrchestratorSettings, ["--verifiers=a:1", f"--{option}={listed}"], "orchestrator")
    assert ended.value.code == 2
    variable = f"SPECMESH_ORCHESTRATOR__{option.upper()}"
    assert f"error: --{option} ({variable}): {told}" in capsys.readouterr().err


def test_address_of_ipv6_has_brackets():
    assert (join("::1", 5), join("127.0.0.1", 5)) == ("[::1]:5", "127.0.0.1:5")
