"""What the tests of commands share."""

import psutil
import pytest
from tests.forked_mesh import forked  # noqa: F401 - a fixture
from tests.forks import nursery

from specmesh import models


@pytest.fixture(scope="session")
def target_model():
    """Folder of the shipped target."""
    return str(models.path(models.TARGET))


@pytest.fixture
def no_process_left():
    """Fails the test if a process it started, or one that those started, outlives it."""
    nursery()  # which stays
    before = set(psutil.Process().children(recursive=True))
    yield
    left = set(psutil.Process().children(recursive=True)) - before
    assert not left


@pytest.fixture(autouse=True)
def _state_of_its_own(monkeypatch, tmp_path):
    """No test writes to the traces of whoever runs it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
