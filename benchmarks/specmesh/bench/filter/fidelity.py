"""The fidelity of texts to what the target itself would say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specmesh.cli.local.models import RealModels
from specmesh.cli.local.process import StartError
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.inference.model import LanguageModel, ModelNotLoadable
from specmesh.inference.offline import answer, log_probabilities, score, tokenize

Answers = Sequence[Sequence[int]]
"""Token ids of one answer to each prompt."""

_GREEDY = Sampling(mode=AcceptanceMode.GREEDY)


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Means over the tokens of some answers, each given the preceding tokens of its answer.

    ``log_probability`` is by the target at temperature 1, in nats. ``agreement`` is the share of
    tokens that the target would have chosen at temperature 0.
    """

    log_probability: float
    agreement: float


@dataclass(frozen=True, slots=True)
class JudgedTexts:
    """The fidelities of the judged answers, and the drafter's own answers."""

    fidelities: Sequence[Fidelity]
    drafter_answers: Answers


def judge(target: LanguageModel, prompts: Sequence[Sequence[int]], answers: Answers) -> Fidelity:
    """Return the fidelity of ``answers``, one for each prompt, none empty."""
    likelihoods, agreed = [], []
    for prompt, tokens in zip(prompts, answers, strict=True):
        logits = score(target, prompt, tokens)
        likelihoods.append(log_probabilities(logits, tokens))
        agreed.append(logits.argmax(axis=1) == np.asarray(tokens))
    return Fidelity(float(np.concatenate(likelihoods).mean()), float(np.concatenate(agreed).mean()))


async def judge_all(
    models: RealModels, texts: Sequence[str], answers: Sequence[Answers], num_tokens: int
) -> JudgedTexts:
    """Judge several lists of greedy answers to the prompts ``texts``. Raises StartError."""
    target, drafter = _load(models.target), _load(models.drafter_names[0])
    prompts = tokenize(target, texts)
    own, fidelities = [], []
    for prompt in prompts:
        own += answer(drafter, [prompt], [_GREEDY], num_tokens)
        await asyncio.sleep(0)  # An interrupted command ends here.
    for each in answers:
        fidelities.append(judge(target, prompts, each))
        await asyncio.sleep(0)
    return JudgedTexts(fidelities, own)


def _load(name: str) -> LanguageModel:
    from specmesh.inference.models.transformers_model import TransformersModel

    try:
        return TransformersModel.load(name, dtype="float32", device="cpu")
    except ModelNotLoadable as error:
        raise StartError(str(error)) from error
