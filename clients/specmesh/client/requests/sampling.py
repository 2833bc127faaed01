"""The sampling and stopping fields of a request, each described once.

A field is one of ``SamplingParameters`` or ``StoppingCriteria`` in the protocol and one of the same
name here, for editors and type checkers, with the option by which commands set it. Requests and
their spans, the command line, the load generator and the gateway's extension follow from the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, TypedDict, get_type_hints

from google.protobuf.descriptor import FieldDescriptor

from specmesh.client.requests.filled import filled, naming
from specmesh.client.requests.grammar import Grammar
from specmesh.v1 import sampling_pb2


class AcceptanceMode(StrEnum):
    """The exact meaning of "lossless" for a sampled answer."""

    COUPLED = "coupled"
    """The answer is exactly the text that the target alone generates with the same seed."""
    REJECTION = "rejection"
    """The answer has the target's distribution, with the highest acceptance."""


_ACCEPTANCE_MODES = {
    AcceptanceMode.COUPLED: sampling_pb2.ACCEPTANCE_MODE_COUPLED,
    AcceptanceMode.REJECTION: sampling_pb2.ACCEPTANCE_MODE_REJECTION,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """The option by which commands set a field."""

    help: str
    name: str = ""
    """The name in messages; by default the field's."""
    least: int = 0
    """The lowest value of a whole number."""
    most: int = 2**32 - 1
    """The highest value of a whole number."""
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    """Reads a value that is no plain one; raises ValueError."""


class SamplingOptions(TypedDict, total=False):
    """The keyword arguments that control how tokens are drawn."""

    temperature: Annotated[float | None, Flag(help="Set the temperature; 0 decodes greedily.")]
    top_k: Annotated[int | None, Flag(help="Sample from this many likeliest tokens; 0 keeps all.")]
    top_p: Annotated[
        float | None,
        Flag(help="Sample from the likeliest tokens with this total probability; 1 keeps all."),
    ]
    seed: Annotated[
        int | None,
        Flag(
            help="Fix the seed, so that a repeated request has the same answer; strategy filter "
            "also needs a --threshold for that.",
            most=2**53 - 1,
        ),
    ]
    acceptance_mode: Annotated[
        AcceptanceMode | str | None,
        Flag(
            help="Choose what 'lossless' means: 'coupled' gives the very text that the target "
            "alone generates with this seed, 'rejection' only its distribution, with higher "
            "acceptance.",
            name="--mode",
        ),
    ]
    min_p: Annotated[
        float | None,
        Flag(help="Sample from tokens with at least this share of the likeliest's probability."),
    ]
    typical_p: Annotated[
        float | None,
        Flag(help="Sample from the most typical tokens with this total probability."),
    ]
    repetition_penalty: Annotated[
        float | None,
        Flag(help="Make tokens of the prompt and the answer less likely; 1 changes nothing."),
    ]
    presence_penalty: Annotated[
        float | None, Flag(help="Make tokens that occur in the answer less likely.")
    ]
    frequency_penalty: Annotated[
        float | None, Flag(help="Make tokens less likely for each time they occur in the answer.")
    ]
    logit_bias: Mapping[int, float]
    allowed_token_ids: Sequence[int]
    banned_token_ids: Sequence[int]
    banned_sequences: Sequence[Sequence[int]]
    bad_words: Annotated[
        Sequence[str],
        Flag(help="Never complete this word; repeat the option for several.", name="--bad-word"),
    ]
    min_tokens: Annotated[
        int | None, Flag(help="Do not end the answer before this many tokens are generated.")
    ]
    num_prompt_tokens: int | None
    grammar: Annotated[
        Grammar | None,
        Flag(
            help="Restrict the answer to a grammar: json_object, or json_schema, regex, ebnf or "
            "choice (a JSON list) with its SOURCE or the FILE that holds it.",
            metavar="NAME=SOURCE|@FILE",
            parse=Grammar.parse,
        ),
    ]


class StoppingOptions(TypedDict, total=False):
    """The keyword arguments that control where an answer ends."""

    max_tokens: Annotated[int | None, Flag(help="End the answer after this many tokens.", least=1)]
    stop_token_ids: Sequence[int]
    stop_strings: Annotated[
        Sequence[str],
        Flag(help="End the answer at this string; repeat the option for several.", name="--stop"),
    ]
    ignore_end_of_text: Annotated[
        bool, Flag(help="Continue to --max-tokens even if the model ends its answer.")
    ]
    include_stop_string: Annotated[
        bool,
        Flag(help="Keep the stop string that ended the answer in the text.", name="--include-stop"),
    ]


_OF_REPLICAS = {"end_token_ids"}
"""Fields that the orchestrator sets, not its callers."""

SAMPLING_FIELDS: Mapping[str, FieldDescriptor] = {
    each.name: each
    for each in sampling_pb2.SamplingParameters.DESCRIPTOR.fields
    if each.name not in _OF_REPLICAS
}
STOPPING_FIELDS: Mapping[str, FieldDescriptor] = {
    each.name: each for each in sampling_pb2.StoppingCriteria.DESCRIPTOR.fields
}
VALUE_TYPES: Mapping[int, type] = {
    FieldDescriptor.CPPTYPE_BOOL: bool,
    FieldDescriptor.CPPTYPE_ENUM: AcceptanceMode,
    FieldDescriptor.CPPTYPE_FLOAT: float,
    FieldDescriptor.CPPTYPE_STRING: str,
    FieldDescriptor.CPPTYPE_UINT32: int,
    FieldDescriptor.CPPTYPE_UINT64: int,
}
"""The type of a field's values, by the type that its descriptor names."""


def flags(options: type) -> dict[str, Flag]:
    """Return the options of commands for the fields of ``SamplingOptions`` or ``StoppingOptions``,
    by field; a field without one can't be set by commands."""
    hints = get_type_hints(options, include_extras=True)
    return {
        name: extra
        for name, hint in hints.items()
        for extra in getattr(hint, "__metadata__", ())
        if isinstance(extra, Flag)
    }


def sampling_parameters(options: Mapping[str, Any]) -> sampling_pb2.SamplingParameters:
    """Build the message of those ``options`` that are its fields. Raises ValueError for an unknown
    mode, and TypeError or ValueError with the field's name for another wrong value."""
    named: dict[str, Any] = {
        name: value for name, value in options.items() if name in SAMPLING_FIELDS
    }
    if isinstance(named.get("bad_words"), str):  # would be read as a sequence of characters
        raise TypeError("bad_words: expected a sequence of strings, got one string")
    if (mode := named.get("acceptance_mode")) is not None:
        named["acceptance_mode"] = _ACCEPTANCE_MODES[AcceptanceMode(mode)]
    if sequences := named.get("banned_sequences"):
        named["banned_sequences"] = _sequences(sequences)
    if bias := named.get("logit_bias"):
        if not isinstance(bias, Mapping):
            kind = type(bias).__name__
            raise TypeError(f"logit_bias: expected a mapping of token ids to numbers, got {kind}")
        named["logit_bias"] = dict(bias)
    if (grammar := named.get("grammar")) is not None:
        if not isinstance(grammar, Grammar):
            raise TypeError(f"grammar: expected a Grammar, got {type(grammar).__name__}")
        named["grammar"] = grammar.message
    return filled(sampling_pb2.SamplingParameters, **named)


def _sequences(given: object) -> list[sampling_pb2.TokenSequence]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"banned_sequences: expected sequences of token ids, got {given!r}")
    sequences = []
    for at, token_ids in enumerate(given):
        if isinstance(token_ids, str) or not isinstance(token_ids, Iterable):
            raise TypeError(f"banned_sequences[{at}]: expected token ids, got {token_ids!r}")
        with naming(f"banned_sequences[{at}]: "):
            sequences.append(sampling_pb2.TokenSequence(token_ids=token_ids))
    return sequences
