"""Keywords of the client become fields of requests."""

from __future__ import annotations

import pytest

from specmesh.client.requests.build import generate_request


@pytest.mark.parametrize("special", [True, False])
def test_special_tokens_around_a_text_are_asked_for_or_not(special):
    assert generate_request("hi", {"add_special_tokens": special}).add_special_tokens is special
    for left_open in ({}, {"add_special_tokens": None}):
        assert not generate_request("hi", left_open).HasField("add_special_tokens")
