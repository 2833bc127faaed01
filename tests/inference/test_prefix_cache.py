"""What is kept for prefixes and found again, against a list that is searched from end to end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.prefix import BLOCK_TOKENS, SALT_BYTES, PrefixChain
from specmesh.inference.models.context.prefix_cache import SUPERSEDED_WITHIN_TOKENS, PrefixCache


def put(cache: PrefixCache[str], tokens: list[int], state: str = "") -> int:
    """Keeps ``tokens`` as something that grew from nothing; returns its key."""
    cache.put(PrefixChain(tokens), state, None, 0)
    key, shared = cache.longest(PrefixChain(tokens))
    assert key is not None
    assert shared == len(tokens)
    return key


def found(cache, length, digest):
    chain = cache.find_base(length, digest)
    return None if chain is None else list(chain)


def base(tokens: list[int]) -> tuple[int, bytes]:
    return PrefixChain(tokens).base()


@pytest.mark.parametrize("num_shared", [1, 15, 16, 17, 31, 32, 40])
def test_longest_shared_beginning_is_counted_to_the_token(num_shared):
    cache: PrefixCache[str] = PrefixCache(1000)
    key = put(cache, list(range(40)))
    tokens = [*range(num_shared), 99, 98]
    assert cache.longest(PrefixChain(tokens)) == (key, num_shared)


def test_nothing_shared_is_nothing_found():
    cache: PrefixCache[str] = PrefixCache(1000)
    assert cache.longest(PrefixChain([1])) == (None, 0)
    put(cache, [1, 2, 3])
    assert cache.longest(PrefixChain([2, 3])) == (None, 0)


def test_state_comes_with_the_tokens_it_covers():
    cache: PrefixCache[str] = PrefixCache(1000)
    key = put(cache, [1, 2, 3], "state")
    assert cache.use(key).state == "state"
    assert list(cache.use(key).chain) == [1, 2, 3]


def test_base_is_found_by_digest_and_length_together():
    cache: PrefixCache[str] = PrefixCache(1000)
    tokens = list(range(40))
    put(cache, tokens)
    assert found(cache, *base(tokens)) == tokens[:32]
    assert found(cache, *base(tokens[:16])) == tokens[:16]
    assert cache.find_base(32, base(tokens[:16])[1]) is None
    assert cache.find_base(16, base(tokens)[1]) is None
    assert cache.find_base(48, base(tokens)[1]) is None
    assert cache.find_base(16, b"") is None


def test_base_that_two_snapshots_share_outlives_either():
    cache: PrefixCache[str] = PrefixCache(80)
    shared = list(range(16))
    older = put(cache, [*shared, *range(100, 120)])
    put(cache, [*shared, *range(200, 220)])
    cache.use(older)
    put(cache, [300])
    put(cache, list(range(400, 410)))  # too much: the newer of the two is let go
    assert cache.longest(PrefixChain([*shared, 200])) == (older, 16)
    assert found(cache, *base(shared)) == shared


def test_least_recently_used_is_evicted_first():
    cache: PrefixCache[str] = PrefixCache(100)
    keys = [put(cache, [i] * 40) for i in (1, 2)]
    cache.use(keys[0])
    put(cache, [3] * 40)
    assert cache.longest(PrefixChain([1] * 40)) == (keys[0], 40)
    assert cache.longest(PrefixChain([2] * 40)) == (None, 0)


def test_newest_is_kept_even_beyond_the_budget():
    cache: PrefixCache[str] = PrefixCache(10)
    put(cache, [1] * 5)
    key = put(cache, [2] * 50)
    assert cache.longest(PrefixChain([2] * 50)) == (key, 50)
    assert cache.longest(PrefixChain([1])) == (None, 0)


@pytest.mark.parametrize(
    ("num_dropped", "replaced"),
    [(0, True), (SUPERSEDED_WITHIN_TOKENS, True), (SUPERSEDED_WITHIN_TOKENS + 1, False)],
)
def test_continuation_replaces_its_origin_unless_that_holds_much_more(num_dropped, replaced):
    cache: PrefixCache[str] = PrefixCache(1000)
    tail = [7] * num_dropped
    origin = put(cache, [*range(20), *tail])
    cache.put(PrefixChain([*range(20), 99]), "", origin, 20)
    _, shared = cache.longest(PrefixChain([*range(20), *tail]))
    assert shared == (20 if replaced else 20 + num_dropped)


def test_continuation_of_an_evicted_origin_is_kept():
    cache: PrefixCache[str] = PrefixCache(50)
    origin = put(cache, [1] * 40)
    put(cache, [2] * 40)
    cache.put(PrefixChain([1] * 45), "", origin, 40)
    assert cache.longest(PrefixChain([1] * 45))[1] == 45


class Reference:
    """The same promises, kept by searching all there is."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.entries: list[tuple[int, list[int]]] = []  # least recently used first
        self.num_puts = 0

    def longest(self, tokens: list[int]) -> tuple[set[int | None], int]:
        """The entries that share the most, those without further tokens if there are any."""
        alike = {key: 0 for key, _ in self.entries}
        for key, held in self.entries:
            while (
                alike[key] < min(len(held), len(tokens)) and held[alike[key]] == tokens[alike[key]]
            ):
                alike[key] += 1
        shared = max(alike.values(), default=0)
        if not shared:
            return {None}, 0
        tied = {key for key, _ in self.entries if alike[key] == shared}
        ending = {key for key, held in self.entries if key in tied and len(held) == shared}
        return ending or tied, shared

    def use(self, key: int) -> list[int]:
        entry = next(entry for entry in self.entries if entry[0] == key)
        self.entries.remove(entry)
        self.entries.append(entry)
        return entry[1]

    def put(self, tokens: list[int], origin: int | None, shared: int) -> None:
        self.entries = [
            (key, held)
            for key, held in self.entries
            if key != origin or len(held) - shared > SUPERSEDED_WITHIN_TOKENS
        ]
        self.entries.append((self.num_puts, tokens))
        self.num_puts += 1
        while (
            len(self.entries) > 1 and sum(len(held) for _, held in self.entries) > self.max_tokens
        ):
            del self.entries[0]


# Few tokens in long runs, so that prefixes share, fork and end anywhere in a block.
runs = st.tuples(st.integers(0, 2), st.integers(1, 40)).map(lambda run: [run[0]] * run[1])
prefixes = st.lists(runs, min_size=1, max_size=3).map(lambda some: [t for run in some for t in run])


@settings(deadline=None)
@given(
    max_tokens=st.integers(1, 300),
    calls=st.lists(st.tuples(prefixes, prefixes, st.booleans()), max_size=12),
)
def test_cache_keeps_and_finds_what_a_plain_list_does(max_tokens, calls):
    cache: PrefixCache[int] = PrefixCache(max_tokens)
    reference = Reference(max_tokens)
    for number, (prefix, more, used) in enumerate(calls):
        chain = PrefixChain(prefix)
        key, shared = cache.longest(chain)
        keys, longest_shared = reference.longest(prefix)
        assert key in keys
        assert shared == longest_shared
        if key is not None and used:
            assert list(cache.use(key).chain) == reference.use(key)
        chain.append(more)
        cache.put(chain, number, key, shared)
        reference.put([*prefix, *more], key, shared)
        for length in range(BLOCK_TOKENS, len(prefix) + 1, BLOCK_TOKENS):
            held = any(tokens[:length] == prefix[:length] for _, tokens in reference.entries)
            expected = prefix[:length] if held else None
            assert found(cache, length, chain.digest_at(length)) == expected


@pytest.mark.parametrize("num_tokens", [5, 40])
def test_prefixes_of_different_salts_share_nothing(num_tokens):
    cache: PrefixCache[str] = PrefixCache(1000)
    own = PrefixChain(range(num_tokens), b"a" * SALT_BYTES)
    cache.put(own, "", None, 0)
    assert cache.longest(own)[1] == num_tokens
    assert cache.longest(PrefixChain(range(num_tokens))) == (None, 0)
    assert cache.longest(PrefixChain(range(num_tokens), b"b" * SALT_BYTES)) == (None, 0)


class ReadChain(PrefixChain):
    """A prefix among many, whose reads are counted together."""

    num_reads = 0

    def __getitem__(self, index):
        ReadChain.num_reads += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("num_common", [0, 100])
def test_few_of_the_cached_prefixes_are_looked_at(num_common):
    cache: PrefixCache[None] = PrefixCache(2000 * (num_common + 30))
    for number in range(4000):  # half of them are evicted again
        cache.put(ReadChain([*range(num_common), *[number] * 30]), None, None, 0)
    before = ReadChain.num_reads
    chain = ReadChain([*range(num_common), *[3000] * 10, 1])
    key, shared = cache.longest(chain)
    assert shared == num_common + 10
    cache.put(chain, None, key, shared)
    assert ReadChain.num_reads - before < 200
