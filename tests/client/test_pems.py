"""Certificates and keys that no connection can be made with, at first and later."""

import codecs
import logging

import pytest
from cryptography.hazmat.primitives import serialization
from tests.client.test_credentials import Authority

from specmesh.client import Client, Hooks, Tls
from specmesh.client.testing import FakeMesh


@pytest.fixture(scope="module")
def authority():
    return Authority()


def locked(key):
    """A private key that has a password."""
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )


def wrong_fields(authority):
    """Values of fields of ``Tls`` that can't be used, and a usable value of each."""
    key, chain = authority.issue("client")
    usable = {"root_certificates": authority.pem, "certificate_chain": chain, "private_key": key}
    other_key, _ = authority.issue("other")
    wrong = [("private_key", each) for each in (other_key, b"", b"\xff nonsense", locked(key))]
    wrong += [(field, each) for field in usable for each in (b"", b"\xff nonsense", key[:-40])]
    return usable, wrong


def test_what_does_not_fit_is_refused_at_once_by_the_name_of_its_field(authority, tmp_path):
    usable, wrong = wrong_fields(authority)
    retries = []
    for field, pem in wrong:
        file = tmp_path / "file.pem"
        file.write_bytes(pem)
        for given in (pem, file):
            tls = Tls(**{**usable, field: given})
            with Client("127.0.0.1:1", tls=tls, hooks=Hooks(on_retry=retries.append)) as client:
                for call in (client.list_models, lambda: client.complete("hello")):
                    with pytest.raises(ValueError, match=f"^{field} must hold"):
                        call()
    assert retries == []


def test_comments_in_any_language_may_stand_around_certificates(authority):
    commented = "# autorité\n".encode() + authority.pem
    with FakeMesh(authority.server()) as mesh:
        mesh.answer("well met")
        with Client(mesh.address, tls=Tls(root_certificates=commented)) as client:
            assert client.complete("hello").text == "well met"


def test_pems_may_begin_with_the_mark_of_utf_8(authority, tmp_path):
    key, chain = authority.issue("client")
    given = {"root_certificates": authority.pem, "certificate_chain": chain, "private_key": key}
    marked = {field: codecs.BOM_UTF8 + pem for field, pem in given.items()}
    files = {field: tmp_path / field for field in marked}
    for field, file in files.items():
        file.write_bytes(marked[field])
    with FakeMesh(authority.server(clients=authority)) as mesh:
        for each in (marked, files):
            mesh.answer("well met")
            with Client(mesh.address, tls=Tls(**each), max_retries=0) as client:
                assert client.complete("hello").text == "well met"


@pytest.mark.parametrize("change", ["followed by a broken one", "named as trusted"])
def test_root_certificates_that_grpc_takes_are_taken(authority, change):
    if change == "named as trusted":
        roots = authority.pem.replace(b"CERTIFICATE", b"TRUSTED CERTIFICATE")
    else:
        broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        roots = authority.pem + broken
    with FakeMesh(authority.server()) as mesh:
        mesh.answer("well met")
        with Client(mesh.address, tls=Tls(root_certificates=roots), max_retries=0) as client:
            assert client.complete("hello").text == "well met"


def test_while_a_changed_file_is_unusable_the_former_stay_in_use_and_it_is_logged_once(
    authority, tmp_path, caplog
):
    caplog.set_level(logging.WARNING, "specmesh.client")
    key, chain = authority.issue("client")
    contents = {"root_certificates": authority.pem, "certificate_chain": chain, "private_key": key}
    files = {field: tmp_path / field for field in contents}
    for field, pem in contents.items():
        files[field].write_bytes(pem)
    other_key, _ = authority.issue("other")
    with (
        FakeMesh(authority.server(clients=authority)) as mesh,
        Client(mesh.address, tls=Tls(**files), max_retries=0) as client,
    ):
        client.list_models()
        for field, pem in (("private_key", other_key), ("root_certificates", b"")):
            files[field].write_bytes(pem)
            client.list_models()
            client.list_models()
            assert [field in each.message for each in caplog.records] == [True]
            caplog.clear()
            files[field].write_bytes(contents[field])
            client.list_models()
        files["certificate_chain"].unlink()
        client.list_models()
    assert len(mesh.metadata) == 8
    assert len(caplog.records) == 1
