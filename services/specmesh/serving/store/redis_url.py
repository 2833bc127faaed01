"""URLs of Redis: one server, or the primary that Sentinel names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

REDIS_PORT = 6379
SENTINEL_PORT = 26379

_ONE_SERVER = ("redis", "rediss", "unix")
_BY_SENTINEL = ("redis+sentinel", "rediss+sentinel")
_OF_CLUSTERS = ("redis+cluster", "rediss+cluster", "redis-cluster", "rediss-cluster")
_HOST = re.compile(r"(?P<host>\[[\da-fA-F:.]+\]|[^\s:\[\]/@]+)(?::(?P<port>\d{1,5}))?", re.ASCII)
_PARAMETERS = ("sentinel_username", "sentinel_password")
_PARAMETERS_OF_ONE = ("db", "username", "password")
_PARAMETERS_OF_TLS = ("ssl_cert_reqs", "ssl_check_hostname")
_CERTIFICATES = ("none", "optional", "required")
_NOT_ENCODED = "in a user or password each of / ? # % must be percent-encoded"
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """The primary that the Sentinels at ``addresses`` know as ``service``.

    The primary and its replicas share credentials, the Sentinels have others. Either all of them
    use TLS or none.
    """

    addresses: tuple[tuple[str, int], ...]
    service: str
    database: int
    tls: bool
    username: str | None
    password: str | None
    sentinel_username: str | None
    sentinel_password: str | None

    @classmethod
    def parse(cls, url: str) -> SentinelUrl:
        """Read ``redis+sentinel://[USER:PASSWORD@]HOST[:PORT],.../SERVICE[/DATABASE]`` with
        parameters ``sentinel_username`` and ``sentinel_password``; ``rediss+sentinel://`` is TLS.

        Raises ValueError, whose message holds no secret.
        """
        parts = urlsplit(url)
        credentials, _, hosts = parts.netloc.rpartition("@")
        username, _, password = credentials.partition(":")
        service, _, database = parts.path.strip("/").partition("/")
        if not service:
            raise ValueError("must name a service after the Sentinels: HOST:PORT,.../SERVICE")
        if not re.fullmatch(r"\d*", database, re.ASCII):
            raise ValueError("the database after the service must be a number")
        given = _parameters(parts.query, _PARAMETERS)
        return cls(
            addresses=tuple(_address(each) for each in hosts.split(",")),
            service=unquote(service),
            database=int(database or 0),
            tls=parts.scheme.startswith("rediss"),
            username=unquote(username) or None,
            password=unquote(password) or None,
            sentinel_username=given.get("sentinel_username"),
            sentinel_password=given.get("sentinel_password"),
        )


def is_by_sentinel(url: str) -> bool:
    """Return True if ``url`` is for ``SentinelUrl``."""
    return url.partition("://")[0] in _BY_SENTINEL


def address_of(url: str) -> str:
    """Return the address in ``url`` for people: without user, password and parameters."""
    if is_by_sentinel(url):
        found = SentinelUrl.parse(url)
        sentinels = ",".join(f"{host}:{port}" for host, port in found.addresses)
        return f"{sentinels}/{found.service}"
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return unquote(parts.path)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    database = dict(parse_qsl(parts.query)).get("db") or parts.path.strip("/")
    return f"{host or 'localhost'}:{parts.port or REDIS_PORT}" + (database and f"/{database}")


def is_tls(url: str) -> bool:
    """Return True if connections use TLS."""
    return url.startswith("rediss")


def check_redis_url(url: str) -> str:
    """Return ``url``. Raises ValueError if it can't be a URL to connect to."""
    scheme, found, _ = url.partition("://")
    if found and scheme in _OF_CLUSTERS:
        raise ValueError(
            "Redis Cluster is not supported; use a primary with replicas, by redis+sentinel://"
        )
    if not found or scheme not in (*_ONE_SERVER, *_BY_SENTINEL):
        raise ValueError(
            "must start with redis://, rediss://, unix://, redis+sentinel:// or rediss+sentinel://"
        )
    if scheme in _BY_SENTINEL:
        SentinelUrl.parse(url)
    else:
        _check_one_server(url)
    return url


def _check_one_server(url: str) -> None:
    """Raise ValueError, whose message holds no secret, for a URL that redis-py would misread, or
    that would fail at each call."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise ValueError(f"the port can't be read; {_NOT_ENCODED}") from None
    if port == 0 or parts.fragment:
        raise ValueError(f"the host and port can't be read; {_NOT_ENCODED}")
    tls = _PARAMETERS_OF_TLS if parts.scheme == "rediss" else ()
    given = _parameters(parts.query, (*_PARAMETERS_OF_ONE, *tls))
    if given.get("ssl_cert_reqs", "none") not in _CERTIFICATES:
        raise ValueError(f"ssl_cert_reqs must be one of: {', '.join(_CERTIFICATES)}")
    database = given.get("db", "") if parts.scheme == "unix" else parts.path.strip("/")
    for each in (database, given.get("db", "")):
        if not re.fullmatch(r"\d*", each, re.ASCII):
            raise ValueError(f"the database must be a number; {_NOT_ENCODED}")
    if database and int(given.get("db") or database) != int(database):
        raise ValueError("the database of the path is another than that of the parameter db")


def _address(text: str) -> tuple[str, int]:
    match = _HOST.fullmatch(text)
    if match is None:
        raise ValueError("Sentinels must be given as HOST or HOST:PORT, separated by commas")
    port = int(match["port"] or SENTINEL_PORT)
    if not 0 < port <= _MAX_PORT:
        raise ValueError(f"a Sentinel's port must be in [1, {_MAX_PORT}]: {port}")
    return match["host"].strip("[]"), port


def _parameters(query: str, known: Sequence[str]) -> Mapping[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(given.keys() - set(known)):
        if not re.fullmatch(r"[a-z_]+", unknown[0]):  # it may be part of a password
            raise ValueError(f"its parameters can't be read; {_NOT_ENCODED}")
        raise ValueError(f"unknown parameter {unknown[0]!r}; known: {', '.join(known)}")
    return given
