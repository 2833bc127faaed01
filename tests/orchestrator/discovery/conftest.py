"""A name server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.name_server import NameServer


@pytest.fixture
def names() -> Iterator[NameServer]:
    with NameServer() as server:
        yield server
