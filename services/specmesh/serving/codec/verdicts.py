"""Conversion between verdicts and their messages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.bonus import Bonus
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.logprobs import Logprobs
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.tree import TokenTree
from specmesh.mesh.v1alpha1 import cost_pb2, verifier_pb2

ROUNDING = 1e-3
"""The tolerance for the sum of a distribution's probabilities."""


class VerificationRequest(NamedTuple):
    """The request that a verdict answers: ``tree`` below a prefix of ``position`` tokens.

    ``num_bonus_candidates`` limits the bonus token's distribution (0: none requested),
    ``num_top_logprobs`` the likeliest tokens with log-probabilities (None: none requested), and
    ``num_node_logprobs`` those for all tokens of the tree.
    """

    tree: TokenTree
    position: int
    sampling: Sampling
    vocab_size: int
    num_bonus_candidates: int = 0
    num_top_logprobs: int | None = None
    num_node_logprobs: int | None = None


def write_verdict(verdict: Verdict, cost: cost_pb2.ComputeCost) -> verifier_pb2.VerifyResponse:
    """Return the message for ``verdict`` and its ``cost``."""
    return verifier_pb2.VerifyResponse(
        accepted_nodes=verdict.accepted_nodes,
        next_token_id=verdict.next_token,
        next_token_kind=verifier_pb2.NEXT_TOKEN_KIND_RECOVERED
        if verdict.recovered
        else verifier_pb2.NEXT_TOKEN_KIND_BONUS,
        bonus=None if verdict.bonus is None else _write_bonus(verdict.bonus),
        cost=cost,
        logprobs=map(_write_logprobs, verdict.logprobs),
        node_logprobs=map(_write_logprobs, verdict.node_logprobs),
    )


def _write_logprobs(logprobs: Logprobs) -> verifier_pb2.Logprobs:
    return verifier_pb2.Logprobs(
        logprob=logprobs.logprob,
        top_token_ids=logprobs.top_token_ids,
        top_logprobs=logprobs.top_logprobs,
    )


def read_verdict(response: verifier_pb2.VerifyResponse, asked: VerificationRequest) -> Verdict:
    """Return the verdict. Raises ``InvalidField`` unless ``verify`` could have returned it for the
    request ``asked`` and some logits."""
    tree = asked.tree
    accepted = tuple(response.accepted_nodes)
    end = _end_of_path(tree, accepted)
    _check_next_token(response, end, asked)
    bonus = None
    if response.HasField("bonus"):
        bonus = _read_bonus(response.bonus, asked, asked.position + len(accepted))
        if tree.children(end):
            raise InvalidField("bonus", "is given, but the next token is not a bonus token")
        drawable = {*bonus.token_ids.tolist(), *([bonus.tail_token] if bonus.tail_mass else [])}
        if response.next_token_id not in drawable:
            raise InvalidField("bonus", "gives the next token no probability")
    elif asked.num_bonus_candidates and not tree.children(end):
        raise InvalidField("bonus", "was requested and is missing")
    tokens = (*tree.tokens_on(accepted), response.next_token_id)
    return Verdict(
        *(accepted, response.next_token_id, bool(tree.children(end)), bonus),
        _read_logprobs("logprobs", response.logprobs, tokens, asked, asked.num_top_logprobs),
        _read_logprobs(
            *("node_logprobs", response.node_logprobs, tree.token_ids),
            *(asked, asked.num_node_logprobs),
        ),
    )


def _end_of_path(tree: TokenTree, accepted: Sequence[int]) -> int:
    """Return the last node of ``accepted``, a path down from the root; 0 if it is empty."""
    end = 0
    for node in accepted:
        if not 1 <= node <= len(tree) or tree.parents[node - 1] != end:
            raise InvalidField("accepted_nodes", f"{node} is not a child of {end}")
        end = node
    return end


def _check_next_token(
    response: verifier_pb2.VerifyResponse, end: int, asked: VerificationRequest
) -> None:
    """Raise ``InvalidField`` unless the next token may follow the node ``end`` and has the right
    kind: recovered if the node has children, else bonus."""
    tree, token = asked.tree, response.next_token_id
    if token >= asked.vocab_size:
        raise InvalidField("next_token_id", f"{token} is outside the vocabulary")
    kind = (
        verifier_pb2.NEXT_TOKEN_KIND_RECOVERED
        if tree.children(end)
        else verifier_pb2.NEXT_TOKEN_KIND_BONUS
    )
    if response.next_token_kind != kind:
        raise InvalidField("next_token_kind", f"must be {kind} after node {end}")
    at_random = asked.sampling.mode is AcceptanceMode.REJECTION
    if not at_random and tree.child_with(end, token) is not None:
        raise InvalidField(
            "next_token_id", f"{token} is a child of node {end} and should have been accepted"
        )


def _read_logprobs(
    field: str,
    messages: Sequence[verifier_pb2.Logprobs],
    tokens: Sequence[int],
    asked: VerificationRequest,
    num_top: int | None,
) -> tuple[Logprobs, ...]:
    """Return the log-probabilities of ``tokens``, of which ``num_top`` likeliest were requested at
    each position; None if none were requested."""
    num_expected = 0 if num_top is None else len(tokens)
    if len(messages) != num_expected:
        raise InvalidField(field, f"must be {num_expected}, not {len(messages)}")
    return tuple(
        _read_logprobs_at(f"{field}[{at}]", message, token, asked.vocab_size, num_top or 0)
        for at, (message, token) in enumerate(zip(messages, tokens, strict=False))
    )


def _read_logprobs_at(
    field: str, message: verifier_pb2.Logprobs, token: int, vocab_size: int, num_top: int
) -> Logprobs:
    """Return the log-probabilities of ``token`` and of the likeliest tokens at its position."""
    top_ids, top = tuple(message.top_token_ids), tuple(message.top_logprobs)
    if len(top_ids) != len(top) or len(top) > num_top:
        raise InvalidField(
            f"{field}.top_token_ids", "must be as many as top_logprobs, and no more than requested"
        )
    if len(set(top_ids)) != len(top_ids) or max(top_ids, default=-1) >= vocab_size:
        raise InvalidField(f"{field}.top_token_ids", "must be distinct ids of the vocabulary")
    # Written so that a NaN is refused as well. A token that was given may be impossible.
    if not message.logprob <= ROUNDING or not all(-math.inf < each <= ROUNDING for each in top):
        raise InvalidField(field, "must not be above 0, and finite for the likeliest tokens")
    if any(later > earlier for earlier, later in pairwise(top)):
        raise InvalidField(f"{field}.top_logprobs", "must never rise")
    if sum(map(math.exp, top)) > 1 + ROUNDING:
        raise InvalidField(f"{field}.top_logprobs", "must not sum to a probability above 1")
    if dict(zip(top_ids, top, strict=True)).get(token, message.logprob) != message.logprob:
        raise InvalidField(f"{field}.logprob", f"differs from token {token}'s in top_logprobs")
    return Logprobs(message.logprob, top_ids, top)


def _write_bonus(bonus: Bonus) -> verifier_pb2.BonusDistribution:
    return verifier_pb2.BonusDistribution(
        token_ids=bonus.token_ids.tolist(),
        probabilities=bonus.probabilities.tolist(),
        tail_mass=bonus.tail_mass,
        tail_token_id=bonus.tail_token,
        tail_token_probability=bonus.tail_token_probability,
    )


def _read_bonus(
    message: verifier_pb2.BonusDistribution, asked: VerificationRequest, position: int
) -> Bonus:
    token_ids = np.asarray(message.token_ids, dtype=np.int64)
    probabilities = np.asarray(message.probabilities, dtype=np.float64)
    if len(token_ids) != len(probabilities) or not len(token_ids):
        raise InvalidField("bonus", "token_ids and probabilities must have one length, above 0")
    if len(token_ids) > asked.num_bonus_candidates:
        raise InvalidField(
            "bonus.token_ids", f"must hold at most {asked.num_bonus_candidates} tokens"
        )
    if (np.diff(token_ids) <= 0).any():
        raise InvalidField("bonus.token_ids", "must ascend")
    if token_ids[-1] >= asked.vocab_size:
        raise InvalidField("bonus.token_ids", f"{token_ids[-1]} is outside the vocabulary")
    if not (probabilities > 0).all():  # so that a NaN is refused as well
        raise InvalidField("bonus.probabilities", "must be above 0")
    _check_tail(message, asked.vocab_size)
    if not abs(float(probabilities.sum()) + message.tail_mass - 1) <= ROUNDING:
        raise InvalidField("bonus", "probabilities and tail_mass must sum to 1")
    return Bonus(
        *(asked.sampling.seed, position, token_ids, probabilities),
        *(message.tail_mass, message.tail_token_id, message.tail_token_probability),
    )


def _check_tail(message: verifier_pb2.BonusDistribution, vocab_size: int) -> None:
    if not 0 <= message.tail_mass <= 1:
        raise InvalidField("bonus.tail_mass", "must be in [0, 1]")
    if not message.tail_mass:
        return
    if not 0 < message.tail_token_probability <= message.tail_mass:
        raise InvalidField("bonus.tail_token_probability", "must be in (0, tail_mass]")
    if message.tail_token_id >= vocab_size or message.tail_token_id in message.token_ids:
        raise InvalidField("bonus.tail_token_id", "must be a token that is not listed")
