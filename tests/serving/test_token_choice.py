"""Parameters that leave no token: the one that is at fault is named."""

import pytest

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import Sampling
from specmesh.serving.codec.token_choice import check_choice

VOCAB = 4
ALL = tuple(range(VOCAB))


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"banned_token_ids": ALL}, "banned_token_ids"),
        ({"banned_token_ids": ALL, "min_tokens": 1, "end_token_ids": (0,)}, "banned_token_ids"),
        ({"min_tokens": 1, "end_token_ids": ALL}, "min_tokens"),
        ({"min_tokens": 1, "end_token_ids": (0,), "banned_token_ids": ALL[1:]}, "min_tokens"),
        ({"allowed_token_ids": (1,), "banned_token_ids": (1,)}, "allowed_token_ids"),
        (
            {"allowed_token_ids": (1,), "banned_token_ids": (1,), "min_tokens": 1},
            "allowed_token_ids",
        ),
        ({"allowed_token_ids": (1,), "min_tokens": 1, "end_token_ids": (1,)}, "min_tokens"),
        (
            {
                "allowed_token_ids": (1, 2),
                "banned_token_ids": (2,),
                "min_tokens": 1,
                "end_token_ids": (1,),
            },
            "min_tokens",
        ),
    ],
)
def test_what_leaves_no_token_is_named(fields, at_fault):
    with pytest.raises(InvalidField, match="leaves no token") as raised:
        check_choice(Sampling(**fields), VOCAB)
    assert raised.value.field == f"sampling.{at_fault}"


@pytest.mark.parametrize(
    "fields",
    [
        {"banned_token_ids": ALL[1:]},
        {"min_tokens": 1, "end_token_ids": ALL[1:]},
        {"end_token_ids": ALL},
        {"allowed_token_ids": (1, 2), "min_tokens": 1, "end_token_ids": (1,)},
    ],
)
def test_one_token_that_is_left_is_enough(fields):
    check_choice(Sampling(**fields), VOCAB)
