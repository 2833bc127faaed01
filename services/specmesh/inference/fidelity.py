"""How near answers are to the target: ``python -m specmesh.inference.fidelity``.

Reads one JSON object from standard input and writes one to standard output, so that a program
without torch can ask. It gives folders or Hugging Face ids of ``target`` and ``drafter``,
``prompts`` (texts), ``num_tokens`` and ``answers``: lists of one answer (token ids) for each
prompt. It gets ``log_probability`` and ``agreement`` of each list, means over its tokens, and
``drafter_answers``, the drafter's own greedy ones.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.inference.model import LanguageModel, ModelNotLoadable
from specmesh.inference.unserved import answer, log_probabilities, score, tokenize

_GREEDY = Sampling(mode=AcceptanceMode.GREEDY)


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Means over the tokens of some answers, each token after what its own answer has before.

    ``log_probability``, in nats: the target's, at temperature 1. ``agreement``: the share
    that the target would have chosen at temperature 0.
    """

    log_probability: float
    agreement: float


def judge(
    target: LanguageModel, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> Fidelity:
    """``answers`` has one for each prompt, none empty."""
    likelihoods, agreed = [], []
    for prompt, tokens in zip(prompts, answers, strict=True):
        logits = score(target, prompt, tokens)
        likelihoods.append(log_probabilities(logits, tokens))
        agreed.append(logits.argmax(axis=1) == np.asarray(tokens))
    return Fidelity(float(np.concatenate(likelihoods).mean()), float(np.concatenate(agreed).mean()))


def main() -> int:
    """Answer what standard input asks; returns the exit status."""
    from specmesh.inference.transformers_model import TransformersModel

    asked = json.load(sys.stdin)
    try:
        target, drafter = (
            TransformersModel.load(asked[role], dtype="float32", device="cpu")
            for role in ("target", "drafter")
        )
    except ModelNotLoadable as error:
        sys.stderr.write(f"{error}\n")
        return 1
    prompts = tokenize(target, asked["prompts"])
    own = [answer(drafter, [prompt], [_GREEDY], asked["num_tokens"])[0] for prompt in prompts]
    judged = [judge(target, prompts, answers) for answers in asked["answers"]]
    json.dump({"fidelity": list(map(asdict, judged)), "drafter_answers": own}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
