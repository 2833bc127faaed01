"""The first tokens of the requests that shared a forward, found on all threads that have time."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest

from specmesh.decoding.sampling import Sampling, choose
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.decoding.winners import OwnTokens
from specmesh.inference.engine import first_tokens
from specmesh.inference.engine.first_tokens import FirstTokens
from specmesh.inference.model import ForwardRequest

SIZE = 20_000
PATIENCE_S = 10


def rows_of(count, size=SIZE):
    return list((3 * np.random.default_rng(count).normal(size=(count, 1, size))).astype(np.float32))


def requests_of(count):
    firsts = [OwnTokens.of(Sampling(seed=number), 5) for number in range(count)]
    return [ForwardRequest(None, EMPTY, first) for first in firsts]


def expected(rows):
    return [choose(row[0], Sampling(seed=number), 5) for number, row in enumerate(rows)]


def found(requests):
    return [request.own.found.get(0) for request in requests]


@pytest.fixture(params=[1, 2, 8])
def num_cores(request, monkeypatch):
    monkeypatch.setattr(first_tokens, "_num_cores", lambda: request.param)
    return request.param


@pytest.mark.parametrize("count", [2, 8, 9, 50])
def test_first_tokens_are_those_that_each_request_would_find(num_cores, count):
    finder = FirstTokens()
    for _ in range(3):
        requests, rows = requests_of(count), rows_of(count)
        finder.find(requests, rows)
        assert found(requests) == expected(rows)


@pytest.mark.parametrize("size", [4096, SIZE])
def test_tokens_further_down_a_chain_are_found_as_well(size):
    tree, count = TokenTree.chain([1, 2, 3]), 20
    owns = [OwnTokens.of(Sampling(seed=number), 5) for number in range(count)]
    requests = [ForwardRequest(None, tree, own) for own in owns]
    rows = rows_of(count, size)  # those after the last node
    FirstTokens().find(requests, rows)
    for number, (own, row) in enumerate(zip(owns, rows, strict=True)):
        assert own.found == {3: choose(row[0], Sampling(seed=number), 8)}
        assert own.below(3, 3).found == {0: own.found[3]}


def test_requests_without_a_first_token_or_without_logits_are_passed_over(num_cores):
    requests, rows = requests_of(20), rows_of(20)
    tokens = expected(rows)
    requests[3] = ForwardRequest(None, EMPTY)
    rows[5], rows[7] = None, rows[7][:0]
    FirstTokens().find(requests, rows)
    for number, (request, token) in enumerate(zip(requests, tokens, strict=True)):
        if number != 3:
            assert request.own.found.get(0) == (None if number in {5, 7} else token)


def test_a_single_request_and_a_small_vocabulary_find_their_tokens_themselves():
    requests = requests_of(1)
    FirstTokens().find(requests, rows_of(1))
    assert found(requests) == [None]
    requests = requests_of(20)
    FirstTokens().find(requests, rows_of(20, 500))
    assert found(requests) == [None] * 20


@pytest.mark.parametrize("when", ["before its first part", "within its first part"])
def test_a_helper_whose_core_is_busy_holds_nobody_up(monkeypatch, when):
    monkeypatch.setattr(first_tokens, "_num_cores", lambda: 2)
    caller, go_on, began = threading.current_thread(), threading.Event(), threading.Event()
    work_off, find = first_tokens._work_off, first_tokens._find

    def held(work, argument):
        if threading.current_thread() is caller:
            assert began.wait(PATIENCE_S)
        else:
            began.set()
            assert go_on.wait(PATIENCE_S)
        work(argument)

    if when == "before its first part":
        monkeypatch.setattr(first_tokens, "_work_off", lambda parts: held(work_off, parts))
    else:
        monkeypatch.setattr(first_tokens, "_find", lambda part: held(find, part))
    finder = FirstTokens()
    for _ in range(3):
        requests, rows = requests_of(40), rows_of(40)
        finder.find(requests, rows)
        assert found(requests) == expected(rows)
    go_on.set()


def test_a_core_that_was_busy_is_left_alone_for_a_while(monkeypatch):
    monkeypatch.setattr(first_tokens, "_num_cores", lambda: 2)
    asked = []

    def begin(_, parts):
        asked.append(parts.popleft())
        never_done = Future()
        never_done.cancel()  # so that the helper could be asked again
        return never_done

    finder = FirstTokens()
    finder.__dict__["_helpers"] = SimpleNamespace(submit=begin)
    for _ in range(first_tokens._ALONE + 1):
        requests, rows = requests_of(20), rows_of(20)
        finder.find(requests, rows)
        assert found(requests) == expected(rows)
        assert len(asked) == 1
    finder.find(requests_of(20), rows_of(20))
    assert len(asked) == 2
