"""What the tests of the page share."""

import pytest
from tests.cli.page.made import answers, eventful, store_with


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """Three answers and an eventful one."""
    return store_with(tmp_path_factory.mktemp("page") / "t.sqlite", *answers(), eventful())
