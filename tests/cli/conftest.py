"""What the tests of commands share."""

import psutil
import pytest

from specmesh.cli import shipped
from specmesh.cli.local.process import StartError


@pytest.fixture(scope="session")
def target_model():
    """Folder of the shipped target; its tests are skipped where it isn't trained yet."""
    try:
        return shipped.shipped_model(shipped.TARGET)
    except StartError as error:
        pytest.skip(str(error))


@pytest.fixture
def no_process_left():
    """Fails the test if a process it started, or one that those started, outlives it."""
    before = set(psutil.Process().children(recursive=True))
    yield
    left = set(psutil.Process().children(recursive=True)) - before
    assert not left
