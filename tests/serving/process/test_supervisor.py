"""The settings of workers, and when those that die are started again; see also the tests of whole
processes in ``tests/e2e/test_workers.py``."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict

from specmesh.serving.process.supervisor import (
    FIRST_BACKOFF_S,
    LONGEST_BACKOFF_S,
    STABLE_SECONDS,
    _Supervisor,
)
from specmesh.serving.settings import WorkersSettings


class Settings(WorkersSettings):
    model_config = SettingsConfigDict(env_prefix="SPECMESH_ANY__")


def test_worker_has_a_name_and_a_port_for_metrics_of_its_own():
    settings = Settings(
        name="west", workers=3, metrics_address="[::1]:9464", probe_address="8086", port=0
    )
    worker = settings.of_worker(2, 50051, 8086)
    assert (worker.name, worker.port) == ("west-2", 50051)
    assert worker.metrics_at == ("::1", 9466)
    assert worker.probe_at == ("127.0.0.1", 8086)
    assert worker.shares_port


def test_any_free_port_for_metrics_stays_one_for_each_worker():
    settings = Settings(name="west", workers=2, metrics_address="0")
    assert settings.of_worker(1, 50051, None).metrics_at == ("127.0.0.1", 0)


def test_one_worker_shares_no_port():
    assert not Settings().shares_port


@pytest.mark.parametrize("workers", [0, -1, 257, "many"])
def test_number_of_workers_that_makes_no_sense_is_refused(workers):
    with pytest.raises(ValidationError, match="workers"):
        Settings(workers=workers)


def test_ports_for_metrics_beyond_the_highest_are_refused():
    with pytest.raises(ValidationError, match="worker 2 of --workers would need port 65537"):
        Settings(workers=3, metrics_address="65535")


def test_worker_that_dies_again_and_again_is_started_ever_later():
    supervisor = _Supervisor([Settings()] * 2, lambda *_: 0)
    young = SimpleNamespace(number=0, has_served=True, began=time.monotonic())
    pauses = [supervisor._backoff(young) for _ in range(10)]
    assert pauses[:3] == [FIRST_BACKOFF_S, 2 * FIRST_BACKOFF_S, 4 * FIRST_BACKOFF_S]
    assert pauses[-1] == LONGEST_BACKOFF_S
    old = SimpleNamespace(number=0, has_served=True, began=time.monotonic() - STABLE_SECONDS)
    assert supervisor._backoff(old) == FIRST_BACKOFF_S
    other = SimpleNamespace(number=1, has_served=True, began=time.monotonic())
    assert supervisor._backoff(other) == FIRST_BACKOFF_S
