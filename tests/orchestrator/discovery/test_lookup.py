"""Lookups at a real name server."""

from __future__ import annotations

import asyncio
import time

import dns.rdatatype
import pytest

from specmesh.orchestrator.replicas.discovery import lookup as module
from specmesh.orchestrator.replicas.discovery.entries import Name
from specmesh.orchestrator.replicas.discovery.lookup import lookup
from specmesh.orchestrator.replicas.discovery.membership import DnsAnswer


def name(server, host="v.test"):
    return Name(host, 5, ("127.0.0.1", server.port))


async def test_addresses_of_both_families_are_found(names):
    names.set("v.test", ["10.0.0.1", "10.0.0.2", "fd00::1"])
    answer = await lookup(name(names))
    assert (sorted(answer.addresses), answer.failure) == (
        ["10.0.0.1:5", "10.0.0.2:5", "[fd00::1]:5"],
        "",
    )


async def test_name_without_addresses_and_name_that_is_not_there_are_no_failures(names):
    names.set("v.test", [])
    assert await lookup(name(names)) == DnsAnswer()
    assert await lookup(name(names, "no.test")) == DnsAnswer()


async def test_more_addresses_than_a_datagram_holds_are_asked_for_over_tcp(names):
    many = [f"10.0.{number}.1" for number in range(200)]
    names.set("v.test", many)
    answer = await lookup(name(names))
    assert {*answer.addresses} == {f"{each}:5" for each in many}
    assert names.num_asked_over_tcp == 1


async def test_family_that_fails_makes_the_answer_uncertain(names):
    names.set("v.test", ["10.0.0.1", "fd00::1"])
    names.fails.add(dns.rdatatype.AAAA)
    answer = await lookup(name(names))
    assert answer.addresses == ("10.0.0.1:5",)
    assert "SERVFAIL" in answer.failure


async def test_name_server_that_is_silent_or_not_there_fails_in_time(names, monkeypatch):
    monkeypatch.setattr(module, "LOOKUP_SECONDS", 0.2)
    names.silent = True
    began = time.monotonic()
    assert "timed out" in (await lookup(name(names))).failure
    assert (await lookup(Name("v.test", 5, ("127.0.0.1", 1)))).failure
    assert time.monotonic() - began < 5


async def test_machine_without_name_servers_fails_with_words(tmp_path, monkeypatch):
    def nowhere(self, *_):
        raise module.dns.resolver.NoResolverConfiguration

    monkeypatch.setattr(module.dns.asyncresolver.Resolver, "read_resolv_conf", nowhere)
    assert (await lookup(Name("v.test", 5))).failure


@pytest.mark.parametrize("host", ["..", "a" * 64 + ".test"])
async def test_name_that_is_none_fails_with_words(names, host):
    assert (await lookup(name(names, host))).failure


async def test_lookup_ends_when_it_is_cancelled(names):
    names.silent = True
    looking = asyncio.create_task(lookup(name(names)))
    await asyncio.to_thread(names.wait_asked, 1)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(looking, 1)
