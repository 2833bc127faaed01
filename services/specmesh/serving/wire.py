"""Between messages and the domain: the only place that builds or reads shared messages.

Reading validates: a wrong field raises ``InvalidField`` with the field's name as the caller
spelt it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from specmesh.decoding.drafting import Choices
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import AcceptanceMode, Distribution, Sampling
from specmesh.decoding.tree import TokenTree
from specmesh.v1 import sampling_pb2, tokens_pb2

MAX_TREE_NODES = 1024
"""Bounds what one call can make a replica compute."""


def read_sampling(message: sampling_pb2.SamplingParameters, seed: int | None = None) -> Sampling:
    """Sampling parameters; ``seed`` stands in for an unset one.

    Without either, a temperature above 0 is refused: the answer would not be a function of
    the request.
    """
    temperature = message.temperature if message.HasField("temperature") else 1.0
    if message.HasField("seed"):
        seed = message.seed
    if seed is None and temperature != 0:
        raise InvalidField("sampling.seed", "must be set unless sampling.temperature is 0")
    try:
        mode = {
            sampling_pb2.ACCEPTANCE_MODE_UNSPECIFIED: AcceptanceMode.COUPLED,
            sampling_pb2.ACCEPTANCE_MODE_COUPLED: AcceptanceMode.COUPLED,
            sampling_pb2.ACCEPTANCE_MODE_REJECTION: AcceptanceMode.REJECTION,
        }[message.acceptance_mode]
    except KeyError:
        raise InvalidField("sampling.acceptance_mode", "is not a known mode") from None
    try:
        return Sampling(
            temperature=temperature,
            top_k=message.top_k,
            top_p=message.top_p if message.HasField("top_p") else 1.0,
            seed=seed or 0,
            mode=mode,
        )
    except InvalidField as error:
        raise InvalidField(f"sampling.{error.field}", error.reason) from None


def write_sampling(sampling: Sampling) -> sampling_pb2.SamplingParameters:
    """The message for ``sampling``, every field set."""
    return sampling_pb2.SamplingParameters(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        seed=sampling.seed,
        acceptance_mode=(
            sampling_pb2.ACCEPTANCE_MODE_REJECTION
            if sampling.mode is AcceptanceMode.REJECTION
            else sampling_pb2.ACCEPTANCE_MODE_COUPLED
        ),
    )


def read_tree(message: tokens_pb2.TokenTree, vocab_size: int) -> TokenTree:
    """The tree of a request."""
    if len(message.token_ids) > MAX_TREE_NODES:
        raise InvalidField("tree.token_ids", f"holds more than {MAX_TREE_NODES} nodes")
    check_tokens("tree.token_ids", message.token_ids, vocab_size)
    return TokenTree(tuple(message.token_ids), tuple(message.parents))


def write_tree(
    tree: TokenTree, distributions: Mapping[int, Distribution] | None = None
) -> tokens_pb2.TokenTree:
    """The message for ``tree`` and what its children were drawn from, by parent node."""
    return tokens_pb2.TokenTree(
        token_ids=tree.token_ids,
        parents=tree.parents,
        draft_distributions=write_distributions(distributions or {}),
    )


def read_distributions(
    messages: Iterable[tokens_pb2.DraftDistribution],
) -> dict[int, Distribution]:
    """Distributions by parent node, normalised in float64 from the floats that travelled."""
    field = "tree.draft_distributions"
    found = {}
    for message in messages:
        probabilities = np.asarray(message.probabilities, dtype=np.float64)
        token_ids = np.asarray(message.token_ids, dtype=np.int64)
        if len(token_ids) != len(probabilities) or not len(token_ids):
            raise InvalidField(field, "token_ids and probabilities must be of one length, not 0")
        if not (np.isfinite(probabilities).all() and (probabilities > 0).all()):
            raise InvalidField(field, "probabilities must be finite and above 0")
        if len(np.unique(token_ids)) != len(token_ids):
            raise InvalidField(field, "a token is listed twice")
        found[message.node] = Distribution(token_ids, probabilities / probabilities.sum())
    return found


def write_distributions(
    distributions: Mapping[int, Distribution],
) -> list[tokens_pb2.DraftDistribution]:
    """The messages for distributions by parent node."""
    return [
        tokens_pb2.DraftDistribution(
            node=node,
            token_ids=distribution.token_ids.tolist(),
            probabilities=distribution.probabilities.tolist(),
        )
        for node, distribution in distributions.items()
    ]


def read_choices(
    messages: Iterable[tokens_pb2.DraftDistribution], vocab_size: int
) -> dict[int, Choices]:
    """Choices by the node they follow."""
    found = {}
    for message in messages:
        choices = Choices(tuple(message.token_ids), tuple(message.probabilities))
        check_tokens("choices.token_ids", choices.token_ids, vocab_size)
        if not choices.token_ids or len(set(choices.token_ids)) != len(choices.probabilities):
            raise InvalidField("choices", "must hold different tokens, and a probability for each")
        # Written so that a NaN is refused as well.
        bounds = (1.0, *choices.probabilities)
        if not all(0 < lower <= upper for upper, lower in pairwise(bounds)):
            raise InvalidField("choices", "probabilities must be in (0, 1] and never rise")
        found[message.node] = choices
    return found


def write_choices(choices: Mapping[int, Choices]) -> list[tokens_pb2.DraftDistribution]:
    """The messages for choices by the node they follow."""
    return [
        tokens_pb2.DraftDistribution(
            node=node, token_ids=chosen.token_ids, probabilities=chosen.probabilities
        )
        for node, chosen in choices.items()
    ]


def check_tokens(field: str, token_ids: Sequence[int], vocab_size: int) -> None:
    """Raise ``InvalidField`` for an id outside the vocabulary."""
    if token_ids and max(token_ids) >= vocab_size:
        at = next(i for i, token in enumerate(token_ids) if token >= vocab_size)
        raise InvalidField(
            f"{field}[{at}]", f"token id {token_ids[at]} is outside the vocabulary of {vocab_size}"
        )
