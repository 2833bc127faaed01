"""In which request of a call that has ended another call goes on."""

from dataclasses import dataclass

import pytest

from specmesh.decoding.prefix import SALT_BYTES, PrefixChain
from specmesh.inference.models.vllm.idle import IdleRequests

TEXT = list(range(100, 300))


@dataclass(eq=False)
class Request:
    request_id: str
    chain: PrefixChain
    num_sure: int


def request(name, tokens, num_drafted=0, salt=b""):
    return Request(name, PrefixChain(tokens, salt), len(tokens) - num_drafted)


@pytest.fixture
def idle():
    return IdleRequests(32)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 70])
@pytest.mark.parametrize("num_new", [0, 1, 40, 100])
def test_a_call_goes_on_in_the_request_of_its_prefix(idle, length, num_new):
    one = request("one", TEXT[:length])
    idle.add(one)
    assert idle.find(PrefixChain(TEXT[: length + num_new])) == (one, length)


@pytest.mark.parametrize("num_accepted", range(4))
def test_accepted_tokens_of_a_draft_are_shared_and_rejected_ones_are_not(idle, num_accepted):
    one = request("one", [*TEXT[:31], 1, 2, 3], num_drafted=3)
    idle.add(one)
    accepted = [1, 2, 3][:num_accepted]
    assert idle.find(PrefixChain([*TEXT[:31], *accepted, 9])) == (one, 31 + num_accepted)


@pytest.mark.parametrize(
    "chain",
    [
        PrefixChain([*TEXT[:39], 7]),
        PrefixChain(TEXT[:39]),
        PrefixChain(TEXT[:50], bytes(SALT_BYTES)),
        PrefixChain([7, *TEXT[1:50]]),
    ],
    ids=["parts from it", "ends before it", "another salt", "another beginning"],
)
def test_a_request_of_another_text_is_left_alone(idle, chain):
    idle.add(request("one", TEXT[:40]))
    assert idle.find(chain) is None


def test_of_sessions_with_a_common_prompt_each_has_its_own(idle):
    one, other = request("one", [*TEXT[:40], 1]), request("other", [*TEXT[:40], 2])
    assert idle.add(one) == []
    assert idle.add(other) == []
    assert idle.find(PrefixChain([*TEXT[:40], 1, 5])) == (one, 41)
    assert idle.find(PrefixChain([*TEXT[:40], 2, 5])) == (other, 41)


def test_a_request_that_has_got_further_takes_the_place_of_another(idle):
    one, other = request("one", [*TEXT[:40], 1], num_drafted=1), request("other", TEXT[:45])
    idle.add(one)
    assert idle.add(other) == [one]
    assert idle.requests() == [other]


def test_a_request_that_goes_on_is_idle_no_more(idle):
    one, other = request("one", TEXT[:40]), request("other", TEXT[100:140])
    idle.add(one)
    idle.add(other)
    idle.remove(one)
    assert idle.find(PrefixChain(TEXT[:50])) is None
    assert (len(idle), idle.requests()) == (1, [other])
