"""Sources of a model's files: a web server, a folder, or Hugging Face."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol, cast
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from specmesh.cli.model_files.sums import BadModelFiles

SILENT_S = 60.0
"""Longest silence of a server."""
_WORTH_ANOTHER_TRY = frozenset({408, 425, 429, 500, 502, 503, 504})


_HUB = "https://huggingface.co"
_SENDABLE = re.compile(r"[!-~]+")
"""A URL whose characters can all be in the first line of a request."""
_HUGGING_FACE_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class BrokenTransfer(Exception):
    """A transfer failed; another try may succeed."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """The octets of a file from ``start`` on; ``num_bytes`` is their number, if known."""

    octets: BinaryIO
    start: int
    num_bytes: int | None = None


class Source(Protocol):
    """A source of files."""

    def open(self, path: str, start: int) -> AbstractContextManager[Transfer]:
        """Open a file at ``start``, or at its beginning if the source can't do better.

        Raises BrokenTransfer, also from within the block, and BadModelFiles."""
        ...


class WebSource:
    """Files below a URL. A ``token`` is sent only over TLS, and not to hosts of redirects.

    Raises BadModelFiles for a URL or a token that can't be sent.
    """

    def __init__(self, url: str, token: str = "") -> None:
        _check_url(url)
        if not (token.isascii() and token.isprintable()):
            # Without the token, which is secret.
            raise BadModelFiles("the token must be one line of printable ASCII characters")
        if token and urlsplit(url).scheme != "https":
            raise BadModelFiles(f"a token is not sent in clear text: {url}")
        self._url = url.rstrip("/")
        self._token = token

    @contextmanager
    def open(self, path: str, start: int) -> Iterator[Transfer]:
        """Request the file, or a range of it if ``start`` is above 0."""
        url = f"{self._url}/{quote(path)}"
        request = Request(url)  # noqa: S310 - source_of lets http and https through
        if start:
            request.add_header("Range", f"bytes={start}-")
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with urlopen(request, timeout=SILENT_S) as response:  # noqa: S310
                length = response.headers["Content-Length"]
                yield Transfer(
                    cast("BinaryIO", response),
                    start if response.status == HTTPStatus.PARTIAL_CONTENT else 0,
                    None if length is None else int(length),
                )
        except HTTPError as error:
            error.close()
            if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                yield Transfer(BytesIO(), 0)  # our part is not shorter than the file, and yet wrong
            elif error.code in _WORTH_ANOTHER_TRY:
                raise BrokenTransfer(f"{url}: status {error.code}") from error
            else:
                raise BadModelFiles(f"{url}: status {error.code}") from error
        except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
            raise BrokenTransfer(f"{url}: {error}") from error


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises as well
    except ValueError as error:
        raise BadModelFiles(f"{url!r} is not a URL: {error}") from error
    if not parts.hostname:
        raise BadModelFiles(f"{url!r} is not a URL: it names no host")
    if not _SENDABLE.fullmatch(url):
        raise BadModelFiles(
            f"{url!r} is not a URL: spaces and other than ASCII characters must be escaped with %"
        )


class FolderSource:
    """Files in a folder, such as a mounted volume."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def open(self, path: str, start: int) -> Iterator[Transfer]:
        """Open the file at ``start``."""
        try:
            with (self._folder / path).open("rb") as file:
                file.seek(start)
                yield Transfer(file, start)
        except FileNotFoundError as error:
            raise BadModelFiles(str(error)) from error


def source_of(text: str, token: str = "", revision: str = "") -> Source:
    """Return the source for an https or http URL, a folder, or a Hugging Face id (OWNER/NAME).

    Raises BadModelFiles.
    """
    is_folder = Path(text).is_dir()
    if not is_folder and _HUGGING_FACE_ID.fullmatch(text):
        hub = os.environ.get("HF_ENDPOINT") or _HUB
        return WebSource(f"{hub}/{text}/resolve/{quote(revision or 'main', safe='')}", token)
    if revision:
        raise BadModelFiles(f"{text} has no revisions: --revision is only for Hugging Face ids")
    if text.startswith(("https://", "http://")):
        return WebSource(text, token)
    if "://" in text:
        raise BadModelFiles(f"{text}: must be https://, http://, a folder or a Hugging Face id")
    if not is_folder:
        raise BadModelFiles(f"{text} is neither a folder nor a Hugging Face id")
    return FolderSource(Path(text))
