"""``specmesh bench rounding``: how often a coupled token depends on the shape of its forward.

A model's own answers go through forwards of several shapes, each with a KV cache that was filled by
forwards of its own shape. At every position a token is drawn from the logits of each shape; in
exact arithmetic all would be the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
import typer

from specmesh import models
from specmesh.decoding.sampling import Sampling, choose, warp
from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.model import (
    Cancellation,
    ForwardRequest,
    LanguageModel,
    Logits,
    ModelNotLoadable,
    SequenceState,
)
from specmesh.inference.offline import answer, tokenize
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import Device, Dtype, Model, ModelDtype, Threads

_TEMPERATURE = 0.8
_SAMPLINGS = {
    "not truncated": Sampling(_TEMPERATURE),
    "top_k 50": Sampling(_TEMPERATURE, top_k=50),
    "top_p 0.9": Sampling(_TEMPERATURE, top_p=0.9),
    "top_k 50, top_p 0.9": Sampling(_TEMPERATURE, top_k=50, top_p=0.9),
}


class _Shape(NamedTuple):
    """The shape of forwards: ``num_sessions`` together, with ``width`` tokens of each."""

    num_sessions: int
    width: int


_ALONE = _Shape(1, 1)
_SHAPES = {
    "8 tokens": _Shape(1, 8),
    "32 sessions": _Shape(32, 1),
    "32 sessions, 8 tokens each": _Shape(32, 8),
}


class _Text(NamedTuple):
    """A prompt, its answer, and the seed of the answer's draws."""

    prompt: Sequence[int]
    answer: Sequence[int]
    seed: int


_ALL = np.empty(0, np.int64)


class DrawnTokens(NamedTuple):
    """The token drawn at a position, and those that top-k and top-p left there (empty means
    all)."""

    token: int
    left: npt.NDArray[np.int64]

    @classmethod
    def of(cls, logits: Logits, sampling: Sampling, position: int) -> DrawnTokens:
        """Draw from ``logits`` ``[vocab]``."""
        left = warp(logits, sampling).token_ids
        return cls(choose(logits, sampling, position), _ALL if left.size == logits.size else left)

    def has(self, token: int) -> bool:
        """Return whether top-k and top-p left ``token``."""
        return not self.left.size or token in self.left


_Positions = dict[tuple[int, int], DrawnTokens]
"""The drawn tokens, by the text's seed and the number of the token in its answer."""


@dataclass(slots=True)
class Differences:
    """The numbers of compared ``positions`` at which two shapes differ.

    ``sets`` counts those where top-k and top-p leave different tokens, ``cut`` those where another
    token is drawn because only one shape leaves it, and ``reordered`` those where another token is
    drawn because the scores of the two are in another order.
    """

    positions: int = 0
    sets: int = 0
    cut: int = 0
    reordered: int = 0

    def count(self, one: DrawnTokens, other: DrawnTokens) -> None:
        """Compare one more position."""
        self.positions += 1
        self.sets += not np.array_equal(one.left, other.left)
        if one.token != other.token:
            in_both = one.has(other.token) and other.has(one.token)
            self.reordered += in_both
            self.cut += not in_both


def measure(
    model: LanguageModel, prompts: Sequence[Sequence[int]], num_tokens: int
) -> dict[str, dict[str, Differences]]:
    """Return the differences from forwards of one token, by shape and sampling, at ``num_tokens``
    positions of the model's answer to each of ``prompts``, which have their own seeds."""
    seeds = range(len(prompts))
    samplings = [Sampling(_TEMPERATURE, seed=seed) for seed in seeds]
    texts = list(map(_Text, prompts, answer(model, prompts, samplings, num_tokens), seeds))
    alone = _draw(model, texts, _ALONE)
    found: dict[str, dict[str, Differences]] = {}
    for shape, sizes in _SHAPES.items():
        found[shape] = {}
        for sampling, positions in _draw(model, texts, sizes).items():
            differences = found[shape][sampling] = Differences()
            for position, drawn in positions.items():
                differences.count(alone[sampling][position], drawn)
    return found


def _draw(model: LanguageModel, texts: Sequence[_Text], shape: _Shape) -> dict[str, _Positions]:
    """Return the tokens drawn from forwards of ``shape``, by sampling."""
    drawn: dict[str, _Positions] = {name: {} for name in _SAMPLINGS}
    for first in range(0, len(texts), shape.num_sessions):
        together = texts[first : first + shape.num_sessions]
        for text, number, logits in _logits(model, together, shape.width):
            position = len(text.prompt) + number
            for name, sampling in _SAMPLINGS.items():
                own = replace(sampling, seed=text.seed)
                drawn[name][text.seed, number] = DrawnTokens.of(logits, own, position)
    return drawn


def _logits(
    model: LanguageModel, texts: Sequence[_Text], width: int
) -> Iterator[tuple[_Text, int, Logits]]:
    """Yield logits ``[vocab]`` for every token of the answers, by forwards of ``width`` tokens
    each."""
    count = len(texts[0].answer)
    sequences = [model.open(text.prompt, Cancellation(), count) for text in texts]
    try:
        for first in range(0, count, width):
            end = min(first + width, count)
            trees = [TokenTree.chain(text.answer[: end - 1]) for text in texts]
            for text, rows in zip(texts, _score(model, sequences, trees), strict=True):
                for number, logits in enumerate(rows, first):
                    yield text, number, logits
    finally:
        for sequence in sequences:
            sequence.close(())


def _score(
    model: LanguageModel, sequences: Sequence[SequenceState], trees: Sequence[TokenTree]
) -> Sequence[Logits]:
    """Return the logits of each tree, from one forward unless prompts are too long for one."""
    found: dict[int, Logits] = {}
    while missing := [number for number in range(len(trees)) if number not in found]:
        requests = [ForwardRequest(sequences[number], trees[number]) for number in missing]
        scored = zip(missing, model.forward(requests), strict=True)
        # The next forward may overwrite what stays on the device.
        found |= {number: np.asarray(logits) for number, logits in scored if logits is not None}
    return [found[number] for number in range(len(trees))]


app = App()


@app.command()
def main(
    model: Model = None,
    dtype: ModelDtype = Dtype.FLOAT32,
    device: Device = "cpu",
    prompts: Annotated[int, typer.Option(min=1, max=64, help="Number of held-out prompts.")] = 64,
    tokens: Annotated[int, typer.Option(min=1, help="Positions of each answer.")] = 320,
    threads: Threads = 2,
) -> None:
    """Print as JSON, by shape of forward and by sampling, how many coupled tokens differ."""
    import torch

    from specmesh.inference.models.transformers_model import TransformersModel

    torch.set_num_threads(threads)
    name = str(models.path(models.TARGET)) if model is None else model
    try:
        loaded = TransformersModel.load(name, dtype=dtype.value, device=device)
    except ModelNotLoadable as error:
        typer.echo(f"specmesh: {error}", err=True)
        raise typer.Exit(2) from error
    texts = tokenize(loaded, [prompt.text for prompt in models.heldout_prompts()[:prompts]])
    found = measure(loaded, texts, tokens)
    typer.echo(
        json.dumps(
            {
                shape: {sampling: asdict(each) for sampling, each in by_sampling.items()}
                for shape, by_sampling in found.items()
            }
        )
    )


if __name__ == "__main__":
    app(prog_name="specmesh bench rounding")
