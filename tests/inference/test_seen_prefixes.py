"""Which prefixes a model that keeps no KV of its own can name."""

from specmesh.decoding.prefix import SALT_BYTES, PrefixChain
from specmesh.inference.models.vllm.seen import SeenPrefixes

SALT = bytes(range(SALT_BYTES))
TOKENS = list(range(100))


def found(seen, chain):
    base = seen.find_base(*chain.base())
    return None if base is None else (list(base), base.salt)


def test_a_prefix_is_found_by_the_digest_of_its_whole_blocks():
    seen, chain = SeenPrefixes(1000), PrefixChain(TOKENS, SALT)
    assert found(seen, chain) is None
    seen.add(chain)
    assert found(seen, chain) == (TOKENS[:96], SALT)
    assert found(seen, PrefixChain(TOKENS[:40], SALT)) == (TOKENS[:32], SALT)


def test_another_salt_length_or_beginning_is_another_prefix():
    seen, chain = SeenPrefixes(1000), PrefixChain(TOKENS, SALT)
    seen.add(chain)
    assert found(seen, PrefixChain(TOKENS)) is None
    assert found(seen, PrefixChain([7, *TOKENS], SALT)) is None
    length, digest = chain.base()
    assert seen.find_base(length - 16, digest) is None


def test_the_least_recent_are_forgotten_from_their_ends():
    seen = SeenPrefixes(6 * 16)
    old, new = PrefixChain(TOKENS[:64]), PrefixChain(range(100, 164))
    seen.add(old)
    seen.add(new)
    assert found(seen, new) == (list(range(100, 164)), b"")
    assert found(seen, old) is None
    assert found(seen, PrefixChain(TOKENS[:32])) == (TOKENS[:32], b"")


def test_what_was_found_is_the_callers_to_change():
    seen, chain = SeenPrefixes(1000), PrefixChain(TOKENS)
    seen.add(chain)
    base = seen.find_base(*chain.base())
    base.append([1, 2, 3])
    assert found(seen, chain) == (TOKENS[:96], b"")
