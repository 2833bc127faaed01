"""The certificates and keys of a client in PEM, checked before gRPC gets them: it would say no more
than that nobody can be reached."""

from __future__ import annotations

import codecs
import logging
import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger("specmesh.client")

Pem = bytes | str | Path
"""PEM text as bytes, or the path of a PEM file."""


_NO_CERTIFICATES = "must hold certificates in PEM"
_FIRST_CERTIFICATE = re.compile(b".*?-----END [A-Z0-9 ]*CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PemTexts:
    """The contents of the fields of ``Tls``, which have these names."""

    root_certificates: bytes | None
    certificate_chain: bytes | None
    private_key: bytes | None


class UnusablePem(ValueError):
    """A PEM text that no connection can be made with. The message repeats nothing of it."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field} {why}")
        self.field = field
        self.why = why


class PemFiles:
    """The newest usable contents of ``pems``, of which files may change. While changed files are
    unusable, as when only one of a pair has been written, the former contents stay in use."""

    def __init__(self, roots: Pem | None, chain: Pem | None, key: Pem | None) -> None:
        self._pems = roots, chain, key
        self._version: object = None
        self._texts: PemTexts | None = None
        self._fault = ""
        """The reason why the files can't be used now; logged once."""

    def current(self) -> PemTexts:
        """Return the contents, the same object until they change. Raises OSError or
        ``UnusablePem`` if they have never been usable."""
        try:
            # If a file changes while it is read, the version is too old, and it is read again.
            version = tuple(map(version_of, self._pems))
            if self._texts is None or version != self._version:
                self._take(PemTexts(*map(_read, self._pems)))
                self._version = version
        except (OSError, UnusablePem) as error:
            if self._texts is None:
                raise
            self._keep(str(error))
        assert self._texts is not None
        return self._texts

    def _take(self, texts: PemTexts) -> None:
        _check(texts)
        self._fault = ""
        if texts != self._texts:  # the files may only have been touched
            self._texts = texts

    def _keep(self, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            logger.warning("changed certificates can't be used, the former stay: %s", fault)


def version_of(pem: Pem | None) -> object:
    """Return a value that changes when the file does. Raises OSError if it can't be read."""
    if pem is None or isinstance(pem, bytes):
        return None
    status = Path(pem).stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(pem: Pem | None) -> bytes | None:
    if pem is None:
        return None
    text = pem if isinstance(pem, bytes) else Path(pem).read_bytes()
    # gRPC would take the mark of UTF-8 for a part of the first line, and find nothing.
    return text.removeprefix(codecs.BOM_UTF8)


def _check(texts: PemTexts) -> None:
    """Raise ``UnusablePem`` unless there are certificates, and the key is that of the first."""
    if texts.root_certificates is not None:
        _check_roots(texts.root_certificates)
    if texts.certificate_chain is not None:
        _check_chain(texts.certificate_chain)
    if texts.certificate_chain is not None and texts.private_key is not None:
        _check_key(texts.certificate_chain, texts.private_key)


def _check_roots(roots: bytes) -> None:
    """Check the first, because gRPC takes those before one that is broken."""
    first = _FIRST_CERTIFICATE.match(roots)
    if first is None:
        raise UnusablePem("root_certificates", _NO_CERTIFICATES)
    with _refused("root_certificates", _NO_CERTIFICATES), _as_file(first[0]) as file:
        _context().load_verify_locations(file)


def _check_chain(chain: bytes) -> None:
    with _refused("certificate_chain", _NO_CERTIFICATES):
        # Comments around the certificates may be in any language.
        _context().load_verify_locations(cadata=chain.decode("ascii", "ignore"))


def _check_key(chain: bytes, key: bytes) -> None:
    why = "must hold the certificate's key in PEM, without a password"
    with _refused("private_key", why), _as_file(chain) as chain_file, _as_file(key) as key_file:
        _context().load_cert_chain(chain_file, key_file, password=lambda: "")


@contextmanager
def _refused(field: str, why: str) -> Iterator[None]:
    """Raise ``UnusablePem`` for what the block can't load."""
    try:
        yield
    except (ssl.SSLError, ValueError):
        raise UnusablePem(field, why) from None
    except (AttributeError, OSError):  # This system lends no files, so gRPC has to find out.
        pass


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # gRPC takes short keys, too.
    return context


@contextmanager
def _as_file(pem: bytes) -> Iterator[str]:
    """Lend ``pem`` as a file, since ``ssl`` takes nothing else; keys stay in memory."""
    with open(os.memfd_create("pem"), "wb", buffering=0) as file:
        file.write(pem)
        yield f"/proc/self/fd/{file.fileno()}"
