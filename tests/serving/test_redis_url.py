"""What REDIS_URL may be, and what it means."""

import pytest

from specmesh.serving.store.redis_url import SentinelUrl, address_of, check_redis_url


@pytest.mark.parametrize(
    "url",
    [
        "redis://host",
        "rediss://user:secret@host:1/2",
        "rediss://user:p%2Fss%3F%23%25@host/?ssl_cert_reqs=none",
        "redis://user:p@ss:word@[::1]:1?db=3",
        "redis://host/3?db=3",
        "unix:///run/redis.sock",
        "redis+sentinel://a/mesh",
        "rediss+sentinel://user:secret@a:1,b:2,[::1]:3/mesh/2?sentinel_password=other",
    ],
)
def test_what_can_be_connected_to_is_taken(url):
    assert check_redis_url(url) == url


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("", "must start with redis://"),
        ("redis", "must start with redis://"),
        ("http://host", "must start with redis://"),
        ("redis+cluster://a,b", "Redis Cluster is not supported"),
        ("rediss-cluster://a,b", "Redis Cluster is not supported"),
        ("redis://host:port", "port can't be read"),
        ("redis://host:65536", "port can't be read"),
        ("redis://user:s3cret/x@host:1", "port can't be read; in a user or password"),
        ("redis://user:s3cret#x@host:1", "port can't be read; in a user or password"),
        ("redis://user:12#s3cret@host:1", "host and port can't be read; in a user or password"),
        ("redis://user:12/s3cret@host:1", "database must be a number; in a user or password"),
        ("redis://user:12?s3cret@host:1", "parameters can't be read; in a user or password"),
        ("redis://host/first", "database must be a number"),
        ("redis://host?db=first", "database must be a number"),
        ("redis://host/2?db=3", "database of the path is another than that of the parameter db"),
        ("unix:///run/redis.sock?db=first", "database must be a number"),
        ("redis://host?protocol=3", "unknown parameter 'protocol'"),
        ("redis://host?ssl_cert_reqs=none", "unknown parameter 'ssl_cert_reqs'"),
        ("unix:///run/redis.sock?ssl_check_hostname=no", "unknown parameter 'ssl_check_hostname'"),
        ("rediss://host?ssl_cert_reqs=maybe", "ssl_cert_reqs must be one of: none, optional"),
        ("redis+sentinel://a:1,b:2", "must name a service"),
        ("redis+sentinel://a:1,b:2/", "must name a service"),
        ("redis+sentinel:///mesh", "must be given as HOST or HOST:PORT"),
        ("redis+sentinel://a,,b/mesh", "must be given as HOST or HOST:PORT"),
        ("redis+sentinel://a:port/mesh", "must be given as HOST or HOST:PORT"),
        ("redis+sentinel://a:0/mesh", r"port must be in \[1, 65535\]"),
        ("redis+sentinel://a:65536/mesh", r"port must be in \[1, 65535\]"),
        ("redis+sentinel://a/mesh/first", "database after the service must be a number"),
        ("redis+sentinel://a/mesh?password=s3cret", "unknown parameter 'password'"),
        ("redis+sentinel://u:s3cret@a b/mesh", "must be given as HOST or HOST:PORT"),
    ],
)
def test_what_cannot_is_refused_without_a_secret(url, fault):
    with pytest.raises(ValueError, match=fault) as refused:
        check_redis_url(url)
    assert "s3cret" not in str(refused.value)


def test_a_sentinel_url_says_whom_to_ask_for_whom_as_whom():
    assert SentinelUrl.parse(
        "rediss+sentinel://user:p%40ss%2F@a:1,[::1]:2,c/mesh/3"
        "?sentinel_username=other&sentinel_password=p%26ss"
    ) == SentinelUrl(
        addresses=(("a", 1), ("::1", 2), ("c", 26379)),
        service="mesh",
        database=3,
        tls=True,
        username="user",
        password="p@ss/",
        sentinel_username="other",
        sentinel_password="p&ss",
    )


def test_a_sentinel_url_needs_no_credentials():
    assert SentinelUrl.parse("redis+sentinel://:secret@a/mesh") == SentinelUrl(
        addresses=(("a", 26379),),
        service="mesh",
        database=0,
        tls=False,
        username=None,
        password="secret",
        sentinel_username=None,
        sentinel_password=None,
    )


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://user:s3cret@cache.internal", "cache.internal:6379"),
        ("rediss://:s3cret@cache.internal:6380/2", "cache.internal:6380/2"),
        ("redis://[::1]:7000", "[::1]:7000"),
        ("redis://cache.internal?db=3", "cache.internal:6379/3"),
        ("redis://", "localhost:6379"),
        ("unix://user:s3cret@/run/redis.sock?db=1", "/run/redis.sock"),
        ("unix:///run/%231/redis.sock", "/run/#1/redis.sock"),
        ("redis+sentinel://u:s3cret@a,b:7/mesh/3?sentinel_password=s3cret", "a:26379,b:7/mesh"),
    ],
)
def test_people_are_told_where_redis_is_and_no_secret(url, address):
    assert address_of(url) == address
