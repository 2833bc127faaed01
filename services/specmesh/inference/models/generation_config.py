"""The generation settings in a model's files, and their use.

Only requests say how tokens are chosen, so no default from the model's files is applied silently:
only the end tokens count, unless an orchestrator is set up to apply the recommended parameters.
All other settings are listed here, so that the operator can be told (docs/models.md has the same
list).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, Self

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import Sampling

FOLLOWED = frozenset({"eos_token_id"})

_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "bad_words_ids": ((),),
    "begin_suppress_tokens": ((),),
    "constraints": ((),),
    "diversity_penalty": (0.0,),
    "do_sample": (True, False),  # false is transformers' default
    "dola_layers": (),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": ((),),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "guidance_scale": (1.0,),
    "max_length": (),
    "max_new_tokens": (),
    "max_time": (),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "min_p": (0.0,),
    "no_repeat_ngram_size": (0,),
    "num_beam_groups": (1,),
    "num_beams": (1,),
    "num_return_sequences": (1,),
    "penalty_alpha": (0.0,),
    "repetition_penalty": (1.0,),
    "sequence_bias": ((), {}),
    "stop_strings": ((), ""),
    "suppress_tokens": ((),),
    "temperature": (1.0,),
    "token_healing": (False,),
    "top_h": (1.0,),
    "top_k": (0,),
    "top_p": (1.0,),
    "typical_p": (1.0,),
    "watermarking_config": (),
}
"""Settings that may change an answer, each with the values that change nothing: for those that
requests also have, the values that equal a request's default."""

DEFAULTS = frozenset({"temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty"})
"""Settings that an orchestrator with ``--generation-config auto`` applies to requests without
them."""

_OF_REQUESTS = {
    *("do_sample", "max_length", "max_new_tokens", "stop_strings", "min_new_tokens"),
    *("bad_words_ids", "sequence_bias", "suppress_tokens"),
    *(each.name for each in fields(Sampling)),
}
LEFT_TO_REQUESTS = {name: each for name, each in _NEUTRAL.items() if name in _OF_REQUESTS}
NOT_DONE = {name: each for name, each in _NEUTRAL.items() if name not in _OF_REQUESTS}

WITHOUT_EFFECT = frozenset(
    {
        # Ids of tokens other than end tokens, and notes of the file's author.
        *("bos_token_id", "decoder_start_token_id", "pad_token_id"),
        *("_from_model_config", "_from_pipeline", "generation_kwargs", "transformers_version"),
        # Settings of transformers' computation and output.
        *("cache_config", "cache_implementation", "compile_config", "continuous_batching_config"),
        *("disable_compile", "low_memory", "max_cache_len", "prefill_chunk_size", "use_cache"),
        *("output_attentions", "output_hidden_states", "output_logits", "output_scores"),
        *("remove_invalid_values", "renormalize_logits", "return_dict_in_generate"),
        # Only beam search reads these, and ``num_beams`` turns it on.
        *("early_stopping", "length_penalty"),
        # Speculative decoding in transformers.
        *("assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight"),
        *("assistant_lookbehind", "is_assistant", "max_matching_ngram_size"),
        *("num_assistant_tokens", "num_assistant_tokens_schedule", "prompt_lookup_num_tokens"),
        *("speculation_type", "target_lookbehind", "use_mtp"),
    }
)
"""Settings that change no token of an answer."""

LONGEST_VALUE = 60
"""The most characters of a value in a sentence: lists of suppressed tokens may have thousands."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The conclusions from a model's files: the tokens that end an answer, sentences on the
    settings that are not applied, values among the end tokens that are no ids of the vocabulary,
    and the recommended sampling parameters, named as those of ``Sampling``."""

    end_ids: tuple[int, ...]
    asked_in_vain: tuple[str, ...]
    no_ids: tuple[object, ...]
    defaults: Mapping[str, float]

    @classmethod
    def of(
        cls,
        *,
        config_json: Mapping[str, Any],
        generation_json: Mapping[str, object] | None,
        tokenizer_id: int | None,
        text_config: Any,
    ) -> Self:
        """Draw the conclusions from a model's files. ``generation_json`` is None for a model
        without such a file; ``config_json`` may then have the settings, as in old models.

        The end tokens are those of the first of these files that names any, and that of the
        tokenizer. Only without any does the default of transformers' class for ``text_config``
        count.
        """
        own, text_json = generation_json or {}, config_json.get("text_config") or {}
        named = (part.get("eos_token_id") for part in (own, config_json, text_json))
        first = next((ids for ids in named if ids is not None), None)
        end_ids, no_ids = end_tokens([first, tokenizer_id], text_config.vocab_size)
        if not end_ids:
            end_ids, _ = end_tokens([text_config.eos_token_id], text_config.vocab_size)
        if generation_json is None:
            listed = LEFT_TO_REQUESTS.keys() | NOT_DONE.keys()
            own = {name: config_json[name] for name in config_json.keys() & listed}
        return cls(end_ids, asked_in_vain(own), tuple(no_ids), sampling_defaults(own))


def sampling_defaults(settings: Mapping[str, object]) -> dict[str, float]:
    """Return those ``settings`` of a ``generation_config.json`` that requests can have as well,
    without those that change nothing or that no request may have."""
    found: dict[str, float] = {}
    for name in sorted(settings.keys() & DEFAULTS):
        value = _number(name, settings[name])
        if value is not None and value not in _NEUTRAL[name]:
            with suppress(InvalidField, TypeError, OverflowError):
                Sampling(**{name: value})  # type: ignore[arg-type]
                found[name] = value
    return found


def _number(name: str, value: object) -> float | None:
    """Return ``value`` as a request's field ``name`` holds it; None if that field can't."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if name != "top_k":
        return value
    # Authors write 20.0 as well as 20, and the field holds 32 bits.
    return int(value) if 0 <= value < 1 << 32 and int(value) == value else None


def asked_in_vain(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Return sentences on those ``settings`` of a ``generation_config.json`` that are not
    applied."""
    known = FOLLOWED | WITHOUT_EFFECT | LEFT_TO_REQUESTS.keys() | NOT_DONE.keys()
    unknown = dict.fromkeys(settings.keys() - known, ())
    groups = (
        (
            LEFT_TO_REQUESTS,
            "requests set this themselves, with their own defaults unless the orchestrator runs "
            "with --generation-config auto",
        ),
        (
            NOT_DONE,
            "this is not supported",
        ),
        (unknown, "this is unknown"),
    )
    found = ((_words(settings, neutral), what) for neutral, what in groups)
    return tuple(f"{', '.join(words)}: {what}" for words, what in found if words)


def end_tokens(sources: Iterable[object], vocab_size: int) -> tuple[tuple[int, ...], list[object]]:
    """Return the ids in ``sources``, each of which is one id, a list of ids, or None; also return
    the values that are no ids of a vocabulary of ``vocab_size``."""
    ids: dict[int, None] = {}
    others: list[object] = []
    for value in _flat(sources):
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < vocab_size:
            ids[value] = None
        else:
            others.append(value)
    return tuple(ids), others


def _flat(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        elif value is not None:
            yield value


def _words(
    settings: Mapping[str, object], neutral: Mapping[str, tuple[object, ...]]
) -> tuple[str, ...]:
    """Return those ``settings`` that are named in ``neutral`` and have none of the neutral
    values."""
    found = []
    for name in sorted(settings.keys() & neutral.keys()):
        value = settings[name]
        comparable = tuple(value) if isinstance(value, list) else value
        if value is not None and comparable not in neutral[name]:
            text = repr(value)
            found.append(f"{name}={text[:LONGEST_VALUE]}{'...' * (len(text) > LONGEST_VALUE)}")
    return tuple(found)
