"""One more strategy leaves seeds what they were, but for those that draw it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from specmesh.bench.kit.draw import draw_strategy
from specmesh.orchestrator.strategies import STRATEGIES

ANYWHERE = [name for name, kind in STRATEGIES.items() if not kind.needs_heads]
"""What every mesh can run."""


def drawn() -> list[str]:
    return [draw_strategy(Random(seed)) for seed in range(3_000)]


def test_every_strategy_is_as_likely_as_any_other():
    counts = Counter(drawn())
    assert counts.keys() == set(ANYWHERE)
    assert all(count == pytest.approx(3_000 / len(ANYWHERE), rel=0.15) for count in counts.values())


def test_a_new_strategy_takes_its_share_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch):
    before = drawn()
    monkeypatch.setitem(STRATEGIES, "newcomer", STRATEGIES["dsi"])  # type: ignore[arg-type]
    after = drawn()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(changed) == {"newcomer"}
    assert len(changed) == pytest.approx(3_000 / (len(ANYWHERE) + 1), rel=0.15)
