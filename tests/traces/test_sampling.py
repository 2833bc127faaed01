"""Which traces are kept, decided at their end."""

from specmesh.traces.collector.sampling import KeepAll, RootFacts, TailOptions, TailSampler

LOW, HIGH = (0).to_bytes(16), (2**64 - 1).to_bytes(16)
"""Ids at both ends of the share."""


def root(duration_ms=10.0, *, failed=False, kind="Generate dsi"):
    return RootFacts(kind, duration_ms, failed)


def sampler(ratio=0.0, **options):
    """One that keeps no trace for its rarity."""
    sampler = TailSampler(TailOptions(ratio=ratio, quiet_s=1e9, **options))
    sampler.keeps(HIGH, root(kind="first"), 0.0)
    return sampler


def test_failed_ones_are_kept_whatever_the_ratio():
    assert sampler().keeps(HIGH, root(failed=True), 1.0)
    assert not sampler().keeps(HIGH, root(), 1.0)


def test_the_share_is_by_the_id_so_that_collectors_agree():
    ids = [(number * 0x9E3779B97F4A7C15 % 2**64).to_bytes(16) for number in range(2000)]
    kept = [[s.keeps(each, root(), 1.0) for each in ids] for s in (sampler(0.1), sampler(0.1))]
    assert kept[0] == kept[1]
    assert 0.08 < sum(kept[0]) / len(ids) < 0.12


def test_from_a_given_duration_on_an_answer_is_slow():
    slow = sampler(slow_ms=100.0)
    assert [slow.keeps(HIGH, root(ms), 1.0) for ms in (99.0, 100.0)] == [False, True]


def test_else_slow_is_what_is_slower_than_most_recent_ones_of_its_kind():
    tail = sampler()
    for number in range(100):
        tail.keeps(HIGH, root(10.0 + number % 10), 1.0)
    assert tail.keeps(HIGH, root(20.0), 1.0)
    assert not tail.keeps(HIGH, root(12.0), 1.0)
    assert not tail.keeps(HIGH, root(20.0, kind="Generate autoregressive"), 1.0)


def test_what_is_slow_follows_the_load():
    tail = sampler()
    for number in range(1000):
        tail.keeps(HIGH, root(10.0 if number < 400 else 100.0), 1.0)
    assert not tail.keeps(HIGH, root(99.0), 1.0)


def test_about_a_twentieth_of_a_steady_load_is_slow():
    tail = sampler()
    durations = [float(n * 7919 % 1000) for n in range(4000)]
    kept = sum(tail.keeps(HIGH, root(ms), 1.0) for ms in durations)
    assert 0.03 < kept / len(durations) < 0.07


def test_a_mesh_that_seldom_answers_has_each_answer_kept():
    tail = TailSampler(TailOptions(ratio=0.0, quiet_s=1.0))
    times = [0.0, 0.5, 0.9, 1.0, 1.5, 2.1]
    kept = [tail.keeps(HIGH, root(), now) for now in times]
    assert kept == [True, False, False, True, False, True]


def test_all_means_all():
    assert KeepAll().keeps(LOW, root(), 0.0)
