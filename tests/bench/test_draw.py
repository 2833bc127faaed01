"""One more strategy leaves seeds what they were, but for those that draw it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.tools.kit.draw import draw_strategy

ANYWHERE = [name for name, kind in STRATEGIES.items() if not kind.needs_heads]
"""What every mesh can run."""


def drawn(*, with_heads: bool = False) -> list[str]:
    return [draw_strategy(Random(seed), with_heads=with_heads) for seed in range(3_000)]


@pytest.mark.parametrize(("with_heads", "able"), [(False, ANYWHERE), (True, [*STRATEGIES])])
def test_every_strategy_is_as_likely_as_any_other(with_heads: bool, able: list[str]):
    counts = Counter(drawn(with_heads=with_heads))
    assert counts.keys() == set(able)
    assert all(count == pytest.approx(3_000 / len(able), rel=0.15) for count in counts.values())


def test_heads_change_nothing_where_they_are_not_drawn():
    pairs = zip(drawn(), drawn(with_heads=True), strict=True)
    assert {new for old, new in pairs if old != new} == {*STRATEGIES} - {*ANYWHERE}


def test_a_new_strategy_takes_its_share_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch):
    before = drawn()
    monkeypatch.setitem(STRATEGIES, "newcomer", STRATEGIES["dsi"])  # type: ignore[arg-type]
    after = drawn()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(changed) == {"newcomer"}
    assert len(changed) == pytest.approx(3_000 / (len(ANYWHERE) + 1), rel=0.15)
