"""The plan of a request: everything checked and every default settled, before any work."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.predict.thresholds import FilterOptions
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.calibrated import CalibratedTrees
from specmesh.decoding.trees.shape import TreeShape
from specmesh.orchestrator.admission.request_limits import (
    MAX_CACHE_SALT_CHARS,
    MAX_TOP_LOGPROBS,
    SEED_BITS,
)
from specmesh.orchestrator.chats.tools import TOOL_CHOICE
from specmesh.orchestrator.parsing.answer_parser import AnswerStyle
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.requests.answer_format import ModelFormats, read_format
from specmesh.orchestrator.requests.forced_calls import ForcedCalls, read_forced
from specmesh.orchestrator.requests.sampling import settle_sampling
from specmesh.orchestrator.requests.stopping import Stopping, read_stopping
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.auto.strategy import Auto
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.options import OPTIONS
from specmesh.serving.codec.filter_options import read_filter_options
from specmesh.serving.codec.wire import used
from specmesh.serving.errors import FailedPreconditionStatus, NotFoundStatus
from specmesh.v1 import generation_pb2, model_pb2, sampling_pb2, speculation_pb2

PLAIN_PARAMETERS = frozenset({"temperature", "top_k", "top_p", "seed", "mode"})
"""Sampling parameters that need no processing of logits."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults for the options that a request leaves unset."""

    strategy: str
    lookahead: int | None = None
    trees: CalibratedTrees | None = None
    as_model_says: bool = False
    """True if sampling parameters that a request leaves unset are those that the model's author
    recommends."""
    formats: ModelFormats = field(default_factory=ModelFormats)
    chunk_interval_s: float = 0.0
    """The shortest time between two chunks of an answer."""

    def trees_for(self, target: Target, temperature: float) -> tuple[TreeShape, ...]:
        """Return the calibrated trees of ``target``; none if they belong to another model."""
        if self.trees is None or self.trees.target_digest != target.info.weights_digest:
            return ()
        return tuple(each.shape for each in self.trees.nearest(temperature))


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """A request that can be carried out."""

    prompt: tuple[int, ...]
    sampling: Sampling
    stopping: Stopping
    strategy: str
    goal: Goal
    filter_options: FilterOptions
    num_top_logprobs: int | None = None
    """Number of likeliest tokens to return with the log-probabilities; None returns neither."""
    keep_special_tokens: bool = False
    cache_salt: str = ""
    style: AnswerStyle = field(default_factory=AnswerStyle)
    """The formats by which the answer is parsed."""
    forced_calls: ForcedCalls | None = None
    """The source of the grammar of an answer that must call tools, as long as its chat is known."""

    @property
    def features(self) -> frozenset[model_pb2.ModelFeature.ValueType]:
        """The features that a replica needs to verify for the answer."""
        features = []
        if self.sampling.mode is AcceptanceMode.REJECTION:
            features.append(model_pb2.MODEL_FEATURE_REJECTION_MODE)
        if self.num_top_logprobs is not None:
            features.append(model_pb2.MODEL_FEATURE_LOGPROBS)
        if self.sampling.grammar is not None:  # who follows grammars also processes logits
            features.append(model_pb2.MODEL_FEATURE_GRAMMARS)
        elif self.sampling.needs_processing:
            features.append(model_pb2.MODEL_FEATURE_LOGIT_PROCESSING)
        return frozenset(features)


def check_model(name: str, target: Target) -> None:
    """Raise ``NotFoundStatus`` for a model that isn't served here; an empty name means any."""
    if name not in {"", target.info.name}:
        served = target.info.name
        raise NotFoundStatus(
            "MODEL_NOT_FOUND",
            f"no model {name!r} here, only {served!r}",
            {"model": name, "served": served},
        )


def make_plan(
    request: generation_pb2.GenerateRequest,
    prompt: tuple[int, ...],
    target: Target,
    defaults: Defaults,
    rng: random.Random,
) -> RequestPlan:
    """Check ``request`` except for its model and its prompt, whose tokens are ``prompt``.

    ``rng`` draws the seed of a request that names none. Raises ``InvalidField``, and
    ``FailedPreconditionStatus`` with reason NO_TOOL_FORMAT. This does not
    check whether the replicas support the plan: ``check_replicas`` does that for a new answer,
    while a resumed answer waits for a replica that supports it.
    """
    strategy = request.speculation.strategy or defaults.strategy
    if strategy not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        close = get_close_matches(strategy, STRATEGIES, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise InvalidField("speculation.strategy", f"{strategy!r} is not one of: {known}{hint}")
    stopping = read_stopping(request, target, len(prompt))
    seed = rng.getrandbits(SEED_BITS)
    is_lossless = STRATEGIES[strategy].lossless
    given = _recommended(target, defaults, only_plain=not is_lossless)
    given.MergeFrom(request.sampling)
    style = read_format(request, target, defaults.formats)
    forced = read_forced(request.chat, style, target.token_bytes.end_of(prompt), target)
    if forced is not None and given.HasField("grammar"):
        if forced.field == TOOL_CHOICE:
            raise InvalidField(TOOL_CHOICE, "excludes sampling.grammar: it is a grammar itself")
        forced = None  # an answer of another grammar has no calls
    if forced is not None:
        given.grammar.CopyFrom(forced.grammar)
    elif given.HasField("grammar") and not _is_settled(request):
        style = replace(style, tools=None, reasoning=None)  # the whole answer is of the grammar
    asked = request.stopping.max_tokens if request.stopping.HasField("max_tokens") else None
    sampling = settle_sampling(given, len(prompt), target, stopping, seed, asked)
    if sampling.needs_processing and not is_lossless:
        processed_by = next(name for name in used(sampling) if name not in PLAIN_PARAMETERS)
        wrong = forced.field if forced is not None else f"sampling.{processed_by}"
        reason = f"{strategy!r} draws tokens unchecked, so it excludes {wrong}"
        raise InvalidField("speculation.strategy", reason)
    goal = _goal(request.speculation, sampling, stopping, target, defaults)
    _check_default_takes(request, strategy)
    return RequestPlan(
        prompt=prompt,
        sampling=sampling,
        stopping=stopping,
        strategy=strategy,
        goal=goal,
        filter_options=_filter_options(request.speculation, strategy),
        num_top_logprobs=_num_top_logprobs(request, strategy),
        keep_special_tokens=request.keep_special_tokens,
        cache_salt=checked_salt(request.cache_salt),
        style=style,
        forced_calls=forced,
    )


def _is_settled(request: generation_pb2.GenerateRequest) -> bool:
    """Return whether ``request`` is that of a session, which keeps the prompt beside it. Its format
    is settled, and its grammar may be that of forced calls, whose chat is not known any more."""
    return request.WhichOneof("prompt") is None


def _check_default_takes(request: generation_pb2.GenerateRequest, strategy: str) -> None:
    """Refuse an option without a strategy where ``auto`` is the default: it chooses its own
    numbers, and whoever sets one means another strategy.

    Other defaults ignore options that they don't take, so that ``autoregressive`` can be the
    default for a while. An answer goes on that was begun when another strategy was the default.
    """
    if request.speculation.strategy or request.HasField("received"):
        return
    if STRATEGIES[strategy] is not Auto:
        return
    for option, _ in request.speculation.ListFields():
        if option.name in OPTIONS:
            field = f"speculation.{option.name}"
            raise InvalidField(
                field, f"the default strategy, {strategy!r}, takes none; name the strategy as well"
            )


def _goal(
    speculation: speculation_pb2.SpeculationOptions,
    sampling: Sampling,
    stopping: Stopping,
    target: Target,
    defaults: Defaults,
) -> Goal:
    ends = () if stopping.ignore_end_of_text else target.info.end_of_text_ids
    return Goal(
        max_tokens=stopping.max_tokens,
        end_of_text_ids=frozenset(ends),
        stop_token_ids=frozenset(stopping.stop_token_ids),
        seed=sampling.seed,
        calibrated_trees=defaults.trees_for(target, sampling.temperature),
        **_strategy_options(speculation, defaults),
    )


def _recommended(
    target: Target, defaults: Defaults, *, only_plain: bool
) -> sampling_pb2.SamplingParameters:
    """Return the sampling parameters that the model's author recommends, if they apply here."""
    found = sampling_pb2.SamplingParameters()
    if defaults.as_model_says:
        found.CopyFrom(target.info.generation_defaults)
        for field, _ in found.ListFields():
            if only_plain and field.name not in PLAIN_PARAMETERS:
                found.ClearField(field.name)  # type: ignore[arg-type]
    return found


def checked_salt(cache_salt: str) -> str:
    """Return ``cache_salt``. Raises ``InvalidField``."""
    if len(cache_salt) > MAX_CACHE_SALT_CHARS:
        raise InvalidField("cache_salt", f"must have at most {MAX_CACHE_SALT_CHARS} characters")
    return cache_salt


def check_replicas(plan: RequestPlan, target: Target) -> None:
    """Refuse an answer that some replica of ``target`` could not finish.

    Raises ``FailedPreconditionStatus`` with reason KV_CACHE_TOO_SMALL if the answer might not fit a
    replica's KV cache, or UNSUPPORTED_FEATURE if a replica lacks a feature it needs.
    """
    for feature in sorted(plan.features):
        target.require(feature)
    num_prompt, max_tokens = len(plan.prompt), plan.goal.max_tokens
    if 0 < target.kv_capacity_tokens < num_prompt + max_tokens:
        raise FailedPreconditionStatus(
            "KV_CACHE_TOO_SMALL",
            f"a prompt of {num_prompt} tokens and an answer of {max_tokens} do not fit into the KV "
            f"cache of every replica: the smallest holds {target.kv_capacity_tokens} tokens",
            {
                "num_prompt_tokens": str(num_prompt),
                "max_tokens": str(max_tokens),
                "kv_capacity_tokens": str(target.kv_capacity_tokens),
            },
        )


def _filter_options(
    speculation: speculation_pb2.SpeculationOptions, strategy: str
) -> FilterOptions:
    path = "speculation.filter"
    if speculation.HasField("filter") and "filter" not in STRATEGIES[strategy].options:
        raise InvalidField(path, f"does not apply to the strategy {strategy!r}")
    return read_filter_options(speculation.filter, path)


def _num_top_logprobs(request: generation_pb2.GenerateRequest, strategy: str) -> int | None:
    path = "num_top_logprobs"
    if not request.HasField("num_top_logprobs"):
        return None
    if request.num_top_logprobs > MAX_TOP_LOGPROBS:
        raise InvalidField(path, f"must be in [0, {MAX_TOP_LOGPROBS}]")
    if not STRATEGIES[strategy].lossless:
        raise InvalidField(path, f"the target does not see every token of strategy {strategy!r}")
    return request.num_top_logprobs


def _strategy_options(
    speculation: speculation_pb2.SpeculationOptions, defaults: Defaults
) -> dict[str, Any]:
    given: dict[str, Any] = {"lookahead": defaults.lookahead}
    for option, value in speculation.ListFields():
        if allowed := OPTIONS.get(option.name):
            if reason := allowed.refusal(value):
                raise InvalidField(f"speculation.{option.name}", reason)
            given[option.name] = value
    return given
