"""Between the target's verdict and its message."""

from __future__ import annotations

import numpy as np

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.bonus import Bonus
from specmesh.decoding.errors import InvalidField
from specmesh.v1 import model_pb2, verifier_pb2


def write_verdict(verdict: Verdict, cost: model_pb2.ComputeCost) -> verifier_pb2.VerifyResponse:
    """The message for ``verdict``, which took ``cost``."""
    return verifier_pb2.VerifyResponse(
        accepted_nodes=verdict.accepted_nodes,
        next_token_id=verdict.next_token,
        next_token_kind=verifier_pb2.NEXT_TOKEN_KIND_RECOVERED
        if verdict.recovered
        else verifier_pb2.NEXT_TOKEN_KIND_BONUS,
        bonus=None if verdict.bonus is None else _write_bonus(verdict.bonus),
        cost=cost,
    )


def read_verdict(response: verifier_pb2.VerifyResponse, seed: int, position: int) -> Verdict:
    """The verdict on a tree whose first level stands at ``position``, drawn with ``seed``.

    Raises ``InvalidField`` for a bonus distribution that is none.
    """
    accepted = tuple(response.accepted_nodes)
    bonus = None
    if response.HasField("bonus"):
        bonus = _read_bonus(response.bonus, seed, position + len(accepted))
    return Verdict(
        accepted,
        response.next_token_id,
        response.next_token_kind == verifier_pb2.NEXT_TOKEN_KIND_RECOVERED,
        bonus,
    )


def _write_bonus(bonus: Bonus) -> verifier_pb2.BonusDistribution:
    return verifier_pb2.BonusDistribution(
        token_ids=bonus.token_ids.tolist(),
        probabilities=bonus.probabilities.tolist(),
        tail_mass=bonus.tail_mass,
        tail_token_id=bonus.tail_token,
        tail_token_probability=bonus.tail_token_probability,
    )


def _read_bonus(message: verifier_pb2.BonusDistribution, seed: int, position: int) -> Bonus:
    token_ids = np.asarray(message.token_ids, dtype=np.int64)
    probabilities = np.asarray(message.probabilities, dtype=np.float64)
    if len(token_ids) != len(probabilities) or not len(token_ids):
        raise InvalidField("bonus", "token_ids and probabilities must be of one length, not 0")
    if (np.diff(token_ids) <= 0).any():
        raise InvalidField("bonus.token_ids", "must ascend")
    if not (probabilities > 0).all():  # so that a NaN is refused as well
        raise InvalidField("bonus.probabilities", "must be above 0")
    if not 0 <= message.tail_mass <= 1:
        raise InvalidField("bonus.tail_mass", "must be in [0, 1]")
    if message.tail_mass and not 0 < message.tail_token_probability <= message.tail_mass:
        raise InvalidField("bonus.tail_token_probability", "must be in (0, tail_mass]")
    return Bonus(
        *(seed, position, token_ids, probabilities),
        *(message.tail_mass, message.tail_token_id, message.tail_token_probability),
    )
