"""Certificates that are replaced while a process runs."""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from tests.serving.identity.conftest import (
    DAY,
    Dial,
    Serve,
    authority_in,
    client_of,
    flags,
    put,
    verify,
)
from tests.serving.process.conftest import Calls, Launch, launch

from specmesh.serving.certs import authority
from specmesh.serving.certs.folder import renew
from specmesh.serving.identity.certificates import Certificate, TlsFiles, watched_certificate
from specmesh.serving.identity.watched import UnusableFile, Watched

__all__ = ["launch"]


def serial_in(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


async def serial_at(port: str, certs: Path) -> int:
    """The serial number of the certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=certs / "ca.pem")
    context.load_cert_chain(certs / "orchestrator.pem", certs / "orchestrator-key.pem")
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection("localhost", int(port), ssl=context)
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return x509.load_der_x509_certificate(certificate).serial_number


def arguments(certs: Path, name: str) -> list[str]:
    """The flags of a process."""
    given = flags(certs, name).items()
    return [part for key, path in given for part in (f"--{key.replace('_', '-')}", str(path))]


async def test_a_renewed_certificate_is_shown_to_new_connections_and_no_stream_is_lost(
    certs: Path, launch: Launch, dial: Dial
):
    process = await launch(*arguments(certs, "verifier"))
    port = process.address.rpartition(":")[2]
    stream = Calls(dial(port, certs, "orchestrator")).draft("wait")
    assert list((await stream.read()).token_ids) == [1]
    former = serial_in(certs / "verifier.pem")
    assert await serial_at(port, certs) == former
    renew(certs, DAY)
    assert serial_in(certs / "verifier.pem") != former
    assert await serial_at(port, certs) == serial_in(certs / "verifier.pem")
    process.go_on()
    assert list((await stream.read()).token_ids) == [2]


async def test_a_port_goes_on_with_what_it_has_while_only_half_of_a_pair_is_replaced(
    certs: Path, serve: Serve, dial: Dial
):
    port = await serve(**flags(certs, "verifier"))
    former = serial_in(certs / "verifier.pem")
    fresh = authority_in(certs).issue(client_of("verifier"), DAY)
    (certs / "verifier.pem").write_bytes(fresh.certificate_pem)
    await verify(dial(port, certs, "orchestrator"))
    (certs / "verifier-key.pem").unlink()
    await verify(dial(port, certs, "orchestrator"))
    assert former != fresh.certificate.serial_number


def test_a_link_that_points_elsewhere_is_noticed_as_kubernetes_swaps_its_volumes(tmp_path: Path):
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "file").write_text(version)
    (tmp_path / "data").symlink_to("1")
    (tmp_path / "file").symlink_to("data/file")
    path = tmp_path / "file"
    watched = Watched([path], path.read_text)
    assert watched.current() == "1"
    (tmp_path / "fresh").symlink_to("2")
    (tmp_path / "fresh").replace(tmp_path / "data")
    assert watched.current() == "2"


def test_files_that_do_not_change_are_not_read_again(tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("1")
    reads = []
    watched = Watched([path], lambda: reads.append(path.read_text()) or len(reads))
    assert [watched.current() for _ in range(3)] == [1, 1, 1]
    path.write_text("22")
    assert watched.current() == 2


def test_a_missing_file_is_an_error_at_first_and_later_leaves_what_was(tmp_path: Path):
    path = tmp_path / "file"
    watched = Watched([path], path.read_text)
    with pytest.raises(UnusableFile):
        watched.current()
    path.write_text("1")
    assert watched.current() == "1"
    path.unlink()
    assert watched.current() == "1"
    path.write_text("2")
    assert watched.current() == "2"


def test_a_file_that_is_of_no_use_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "file"
    path.write_text("1")
    watched = Watched([path], path.read_text)
    watched.current()
    path.unlink()
    for _ in range(3):
        assert watched.current() == "1"
    assert [record.msg for record in caplog.records] == ["changed file not usable"]


def test_what_is_only_touched_is_the_same_as_before(certs: Path):
    files = TlsFiles(certs / "verifier.pem", certs / "verifier-key.pem", certs / "ca.pem")
    watched = watched_certificate(files)
    before = watched.current()
    os.utime(files.cert, (1, 1))
    assert watched.current() is before
    renew(certs, DAY)
    assert watched.current() is not before


HOUR = timedelta(hours=1)


class MovedClock:
    """Tells the time, some hours earlier or later."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def watched(certs: Path) -> tuple[Watched[Certificate], MovedClock]:
    """A verifier's certificate, valid for a day, and the clock that it is held against."""
    files = TlsFiles(certs / "verifier.pem", certs / "verifier-key.pem", certs / "ca.pem")
    clock = MovedClock()
    return watched_certificate(files, now=clock), clock


def test_an_expired_certificate_takes_the_place_of_none_that_is_valid(
    certs: Path, watched: tuple[Watched[Certificate], MovedClock], caplog: pytest.LogCaptureFixture
):
    certificate, clock = watched
    former = certificate.current()
    put(certs, "verifier", authority_in(certs).issue(client_of("verifier"), HOUR))
    clock.ahead = 2 * HOUR
    assert [certificate.current(), certificate.current()] == [former, former]
    assert caplog.messages == ["changed file not usable"]
    assert "verifier.pem expired at " in vars(caplog.records[0])["reason"]
    clock.ahead = 48 * HOUR
    assert certificate.current() is not former
    assert caplog.messages == ["changed file not usable", "certificate not valid"]


def test_a_certificate_that_is_not_yet_valid_waits_for_its_time(
    certs: Path, watched: tuple[Watched[Certificate], MovedClock], monkeypatch: pytest.MonkeyPatch
):
    certificate, clock = watched
    former = certificate.current()
    monkeypatch.setattr(authority, "CLOCK_SKEW", -HOUR)
    put(certs, "verifier", authority_in(certs).issue(client_of("verifier"), DAY))
    assert certificate.current() is former
    clock.ahead = 2 * HOUR
    assert certificate.current() is not former


async def test_a_port_with_an_expired_certificate_opens_and_logs_an_error(
    certs: Path, serve: Serve, caplog: pytest.LogCaptureFixture
):
    put(certs, "verifier", authority_in(certs).issue(client_of("verifier"), -timedelta(minutes=1)))
    assert await serve(**flags(certs, "verifier"))
    assert ("certificate not valid", logging.ERROR) in [
        (record.msg, record.levelno) for record in caplog.records
    ]


async def test_a_port_is_served_from_files_that_begin_with_the_mark_of_utf_8(
    certs: Path, serve: Serve, dial: Dial
):
    settings = flags(certs, "verifier")
    for file in settings.values():
        file.write_bytes(codecs.BOM_UTF8 + file.read_bytes())
    port = await serve(**settings)
    (certs / "ca.pem").write_bytes(settings["tls_ca"].read_bytes().removeprefix(codecs.BOM_UTF8))
    await verify(dial(port, certs, "orchestrator"))


def damage(certs: Path, how: str) -> None:
    match how:
        case "no certificate":
            (certs / "verifier.pem").write_text("hello")
        case "a private key":
            (certs / "verifier-key.pem").write_text("hello")
        case "doesn't match":
            put(certs, "other", authority_in(certs).issue(client_of("client"), DAY))
            (certs / "other-key.pem").replace(certs / "verifier-key.pem")
        case "ca.pem":
            (certs / "ca.pem").write_text("hello")
        case "No such file":
            (certs / "verifier.pem").unlink()


@pytest.mark.parametrize(
    "how", ["no certificate", "a private key", "doesn't match", "ca.pem", "No such file"]
)
def test_files_that_are_of_no_use_are_refused_by_name(certs: Path, how: str):
    damage(certs, how)
    files = TlsFiles(certs / "verifier.pem", certs / "verifier-key.pem", certs / "ca.pem")
    with pytest.raises(UnusableFile, match=how):
        watched_certificate(files).current()


@pytest.mark.parametrize(
    ("prefix", "gone"), [("--tls", "cert"), ("--mesh", "key"), ("--tls", "ca")]
)
def test_a_file_that_is_missing_is_told_with_its_option(tmp_path: Path, prefix: str, gone: str):
    paths = {name: tmp_path / name for name in ("cert", "key", "ca")}
    for name, path in paths.items():
        if name != gone:
            path.touch()
    files = TlsFiles(**paths, options=prefix)
    with pytest.raises(UnusableFile, match=f"^{prefix}-{gone} .*{gone} can't be read: No such"):
        watched_certificate(files).current()
