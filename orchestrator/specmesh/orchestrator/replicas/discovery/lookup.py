"""DNS lookups.

They use dnspython because the system's ``getaddrinfo`` blocks a thread for up to half a minute,
can't be cancelled, and only queries the servers of /etc/resolv.conf, and because gRPC's resolver
is not available from Python. /etc/hosts is not read: a name there has one address and needs no
discovery.
"""

from __future__ import annotations

import asyncio

import dns.asyncresolver
import dns.exception
import dns.rdatatype
import dns.resolver

from specmesh.orchestrator.replicas.discovery.entries import Name, join
from specmesh.orchestrator.replicas.discovery.membership import DnsAnswer

LOOKUP_SECONDS = 5.0
"""Time limit for the name servers, retries included."""


async def lookup(name: Name) -> DnsAnswer:
    """Return the current IPv4 and IPv6 addresses of ``name``. Raises only cancellation."""
    found = await asyncio.gather(_ask(name, dns.rdatatype.A), _ask(name, dns.rdatatype.AAAA))
    addresses = [address for each in found for address in each.addresses]
    failures = dict.fromkeys(each.failure for each in found if each.failure)
    return DnsAnswer(tuple(addresses), "; ".join(failures))


async def _ask(name: Name, kind: dns.rdatatype.RdataType) -> DnsAnswer:
    try:
        response = await _resolver(name).resolve(
            name.host, kind, raise_on_no_answer=False, search=True, lifetime=LOOKUP_SECONDS
        )
    except dns.resolver.NXDOMAIN:
        return DnsAnswer()
    except (dns.exception.DNSException, OSError, ValueError) as error:
        return DnsAnswer(failure=str(error) or type(error).__name__)
    records = () if response.rrset is None else response.rrset
    return DnsAnswer(tuple(join(record.address, name.port) for record in records))


def _resolver(name: Name) -> dns.asyncresolver.Resolver:
    """Return a new resolver for each lookup: /etc/resolv.conf may have changed, and reading it
    takes only 25 µs."""
    resolver = dns.asyncresolver.Resolver(configure=name.server is None)
    if name.server is not None:
        host, resolver.port = name.server
        resolver.nameservers = [host]
    return resolver
