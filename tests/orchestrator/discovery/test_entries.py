"""What an operator may list as replicas."""

from __future__ import annotations

import pytest

from specmesh.orchestrator.replicas.discovery.entries import Entries, Name, join, read_entries


def test_addresses_are_taken_as_they_are_and_names_are_told_by_their_scheme():
    read = read_entries("10.0.0.1:5, verifier:5,,unix:/x , dns:///verifier.mesh.svc:5,10.0.0.1:5")
    assert read == Entries(("10.0.0.1:5", "verifier:5", "unix:/x"), (Name("verifier.mesh.svc", 5),))


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


def test_address_of_ipv6_has_brackets():
    assert (join("::1", 5), join("127.0.0.1", 5)) == ("[::1]:5", "127.0.0.1:5")
