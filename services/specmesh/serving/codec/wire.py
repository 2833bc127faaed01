"""Conversion between shared messages and domain types; no other module builds or reads them.

Reading validates: a wrong field raises ``InvalidField`` with the field's path in the request.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from specmesh.decoding.drafting import TopK, highest_entropy
from specmesh.decoding.errors import InvalidField, within
from specmesh.decoding.sampling import (
    MAX_BANNED_SEQUENCE,
    MOST_ENTRIES,
    AcceptanceMode,
    Distribution,
    Sampling,
)
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.mesh.v1alpha1 import confidence_pb2, tokens_pb2
from specmesh.serving.codec.grammars import read_grammar, write_grammar
from specmesh.v1 import sampling_pb2

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_TREE_NODES = 1024
"""Bounds the work that one call can cause."""
MAX_POSITIONS = 256
"""Bounds the draft tokens that one call can have assessed."""

MANY = 128
"""The number of token ids from which on conversion to an array pays off."""

_ROUNDING = 1e-3
"""The tolerance for a sum of probabilities above 1, for float32 in a drafter's softmax."""


_MODES: Mapping[int, AcceptanceMode] = {
    sampling_pb2.ACCEPTANCE_MODE_COUPLED: AcceptanceMode.COUPLED,
    sampling_pb2.ACCEPTANCE_MODE_REJECTION: AcceptanceMode.REJECTION,
}


def read_sampling(message: sampling_pb2.SamplingParameters, seed: int | None = None) -> Sampling:
    """Return the sampling parameters; ``seed`` is used if the message has none.

    Without either, a temperature above 0 is refused: the answer would not be a function of the
    request. Every field but ``acceptance_mode`` has the name that it has in ``Sampling``.
    """
    with within("sampling"):
        given = {field.name: _plain(field.name, value) for field, value in message.ListFields()}
    if seed is not None:
        given.setdefault("seed", seed)
    if "seed" not in given and given.get("temperature") != 0:
        raise InvalidField("sampling.seed", "must be set unless sampling.temperature is 0")
    mode = given.pop("acceptance_mode", sampling_pb2.ACCEPTANCE_MODE_COUPLED)
    if mode not in _MODES:
        raise InvalidField("sampling.acceptance_mode", "is not a known mode")
    with within("sampling"):
        return Sampling(mode=_MODES[mode], **given)


def write_sampling(sampling: Sampling) -> sampling_pb2.SamplingParameters:
    """Return the message for ``sampling``: its seed, its mode, and the parameters it uses."""
    given = {**used(sampling), "seed": sampling.seed}
    rejects = given.pop("mode", None) is AcceptanceMode.REJECTION
    if sequences := given.get("banned_sequences"):
        given["banned_sequences"] = [
            sampling_pb2.TokenSequence(token_ids=sequence) for sequence in sequences
        ]
    given["logit_bias"] = dict(sampling.logit_bias)
    if sampling.needs_processing:  # 0 as well: left out, it would be the length of the prompt
        given["num_prompt_tokens"] = sampling.num_prompt_tokens
    if sampling.grammar is not None:
        given["grammar"] = write_grammar(sampling.grammar)
    mode = sampling_pb2.ACCEPTANCE_MODE_COUPLED
    if rejects:
        mode = sampling_pb2.ACCEPTANCE_MODE_REJECTION
    return sampling_pb2.SamplingParameters(**given, acceptance_mode=mode)


def _plain(name: str, value: Any) -> Any:
    """Return the value of a sampling parameter as ``Sampling`` has it."""
    # Before anything is copied: a message has room for millions of entries.
    if name in MOST_ENTRIES and len(value) > MOST_ENTRIES[name]:
        raise InvalidField(name, f"has more than {MOST_ENTRIES[name]} entries")
    if name == "logit_bias":
        return tuple(sorted(value.items()))
    if name == "banned_sequences":  # one token too many is enough for `Sampling` to refuse
        return tuple(tuple(each.token_ids[: MAX_BANNED_SEQUENCE + 1]) for each in value)
    if name == "grammar":
        return read_grammar(value)
    return value if isinstance(value, int | float) else tuple(value)


def used(parameters: DataclassInstance) -> dict[str, Any]:
    """Return the values of a dataclass that are not the defaults, by name.

    Only these are sent: a process of an older version, which refuses a field that it does not know,
    can thus serve every request that does not use it.
    """
    values = ((each, getattr(parameters, each.name)) for each in fields(parameters))
    return {each.name: value for each, value in values if value != each.default}


def read_tree(message: tokens_pb2.TokenTree, vocab_size: int) -> TokenTree:
    """Return the tree of a request. Raises ``InvalidField`` for more than ``MAX_TREE_NODES``."""
    token_ids, parents = message.token_ids, message.parents
    if not token_ids and not parents:
        return EMPTY
    for name, entries in (("token_ids", token_ids), ("parents", parents)):
        if len(entries) > MAX_TREE_NODES:
            raise InvalidField(f"tree.{name}", f"must hold at most {MAX_TREE_NODES} nodes")
    check_tokens("tree.token_ids", token_ids, vocab_size)
    return TokenTree(tuple(token_ids), tuple(parents))


def write_tree(
    tree: TokenTree, distributions: Mapping[int, Distribution] | None = None
) -> tokens_pb2.TokenTree:
    """Return the message for ``tree``, with the ``distributions`` that each node's children were
    drawn from, by parent node."""
    return tokens_pb2.TokenTree(
        token_ids=tree.token_ids,
        parents=tree.parents,
        draft_distributions=write_distributions(distributions or {}),
    )


def read_distributions(
    messages: Iterable[tokens_pb2.DraftDistribution],
) -> dict[int, Distribution]:
    """Return distributions by parent node, normalized in float64 from float32 on the wire."""
    field = "tree.draft_distributions"
    found = {}
    for message in messages:
        probabilities = np.asarray(message.probabilities, dtype=np.float64)
        token_ids = np.asarray(message.token_ids, dtype=np.int64)
        if len(token_ids) != len(probabilities) or not len(token_ids):
            raise InvalidField(field, "token_ids and probabilities must have one length, above 0")
        if not (np.isfinite(probabilities).all() and (probabilities > 0).all()):
            raise InvalidField(field, "probabilities must be finite and above 0")
        if len(np.unique(token_ids)) != len(token_ids):
            raise InvalidField(field, "token_ids must be distinct")
        found[message.node] = Distribution(token_ids, probabilities / probabilities.sum())
    return found


def write_distributions(
    distributions: Mapping[int, Distribution],
) -> list[tokens_pb2.DraftDistribution]:
    """Return the messages for distributions by parent node."""
    return [
        tokens_pb2.DraftDistribution(
            node=node,
            token_ids=distribution.token_ids.tolist(),
            probabilities=distribution.probabilities.tolist(),
        )
        for node, distribution in distributions.items()
    ]


def read_choices(
    messages: Sequence[tokens_pb2.DraftDistribution], entropies: Sequence[float], vocab_size: int
) -> dict[int, TopK]:
    """Return a drafter's choices by the node that they follow.

    If ``entropies`` is empty, as from older drafters, each entropy is taken to be the highest that
    the choices allow.
    """
    if entropies and len(entropies) != len(messages):
        raise InvalidField("entropies", f"must be as long as choices, {len(messages)}")
    found = {}
    for n, (message, told) in enumerate(zip_longest(messages, entropies)):
        field = f"choices[{n}]"
        _check_choices(field, message.token_ids, message.probabilities)
        check_tokens(f"{field}.token_ids", message.token_ids, vocab_size)
        entropy = highest_entropy(message.probabilities, vocab_size) if told is None else told
        _check_entropy(f"entropies[{n}]", entropy)
        found[message.node] = TopK(tuple(message.token_ids), tuple(message.probabilities), entropy)
    return found


def write_choices(choices: Mapping[int, TopK]) -> list[tokens_pb2.DraftDistribution]:
    """Return the messages for choices by the node that they follow; entropies are sent beside
    them."""
    return [
        tokens_pb2.DraftDistribution(
            node=node, token_ids=chosen.token_ids, probabilities=chosen.probabilities
        )
        for node, chosen in choices.items()
    ]


def read_positions(messages: Sequence[confidence_pb2.DraftPosition]) -> list[TopK]:
    """Return a drafter's choices at each position of a request."""
    if not 1 <= len(messages) <= MAX_POSITIONS:
        raise InvalidField(
            "positions", f"must hold 1 to {MAX_POSITIONS} positions, not {len(messages)}"
        )
    positions = []
    for n, message in enumerate(messages):
        _check_choices(f"positions[{n}]", message.token_ids, message.probabilities)
        _check_entropy(f"positions[{n}].entropy", message.entropy)
        positions.append(
            TopK(tuple(message.token_ids), tuple(message.probabilities), message.entropy)
        )
    return positions


def write_position(choices: TopK) -> confidence_pb2.DraftPosition:
    """Return the message for a drafter's choices at one position."""
    return confidence_pb2.DraftPosition(
        token_ids=choices.token_ids, probabilities=choices.probabilities, entropy=choices.entropy
    )


def check_tokens(field: str, token_ids: Sequence[int], vocab_size: int) -> None:
    """Raise ``InvalidField`` for an id outside the vocabulary."""
    if _highest(token_ids) >= vocab_size:
        at = next(i for i, token in enumerate(token_ids) if token >= vocab_size)
        raise InvalidField(
            f"{field}[{at}]", f"token id {token_ids[at]} is outside the vocabulary of {vocab_size}"
        )


def _highest(token_ids: Sequence[int]) -> int:
    """Return the highest id, or -1 for an empty sequence."""
    if len(token_ids) < MANY:
        return max(token_ids, default=-1)
    return int(np.asarray(token_ids).max())


def _check_choices(field: str, token_ids: Sequence[int], probabilities: Sequence[float]) -> None:
    if not token_ids or len(set(token_ids)) != len(token_ids):
        raise InvalidField(f"{field}.token_ids", "must hold at least one token, each only once")
    if len(probabilities) != len(token_ids):
        raise InvalidField(f"{field}.probabilities", "must be as long as token_ids")
    # Written so that a NaN is refused as well.
    if not all(0 < lower <= upper for upper, lower in pairwise((1.0, *probabilities))):
        raise InvalidField(f"{field}.probabilities", "must be in (0, 1] and never rise")
    if sum(probabilities) > 1 + _ROUNDING:
        raise InvalidField(f"{field}.probabilities", "must not sum to more than 1")


def _check_entropy(field: str, entropy: float) -> None:
    if not 0 <= entropy < math.inf:
        raise InvalidField(field, "must be finite and not negative")
