"""``specmesh bench heads``: the tokens of heads' drafts that a target accepts, without a mesh.

An accepted draft has the tokens that the target writes. So heads draft at every position of the
target's own answers, and a draft is accepted up to its first token that differs. In coupled mode
they draw with the same noise as the target. A drafter is measured the same way, for comparison.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console

from specmesh import models
from specmesh.decoding.drafting import draw_children
from specmesh.decoding.sampling import Sampling
from specmesh.inference.model import LanguageModel, ModelNotLoadable
from specmesh.inference.offline import answer, score, tokenize
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.experiment import SEED, TEMPERATURES
from specmesh.tools.kit.options import (
    Json,
    Model,
    NumPrompts,
    PromptsFile,
    Seed,
    Temperatures,
    Threads,
    Tokens,
)
from specmesh.tools.kit.prompts import read_prompts
from specmesh.tools.kit.tables import make_table

if TYPE_CHECKING:
    from torch import Tensor

    from specmesh.inference.engine.kv_store import KVShape
    from specmesh.inference.models.heads.eagle3.network import Attend

Agreement = npt.NDArray[np.bool_]
"""``[drafts, depth]``: whether a draft's token is the target's, given that its preceding ones
are."""

_TIMED_STEPS = 300
_TIMED_TEXT_TOKENS = 256


@dataclass(frozen=True, slots=True)
class JudgedText:
    """A prompt, the target's answer, and the sampling of its tokens."""

    prompt: Sequence[int]
    answer: Sequence[int]
    sampling: Sampling

    def is_drafted(self, number: int, logits: npt.NDArray[np.floating[Any]]) -> bool:
        """Return whether a drafter draws token ``number`` of the answer from ``logits``."""
        drawn = draw_children(logits, self.sampling, len(self.prompt) + number, 1)
        return drawn.children[0] == self.answer[number]


@dataclass(frozen=True, slots=True)
class HeadsRow:
    """The drafts of a drafter, or of heads, at one temperature."""

    drafter: str
    temperature: float
    acceptance_by_depth: list[float]
    """Acceptance rate of the tokens whose predecessors in the draft were accepted, from the first
    on."""
    tokens_per_call: list[float]
    """Tokens per verification of drafts of 1, 2, … tokens, the target's own token included."""
    step_ms: float
    """Median time for one token of one draft; for a drafter, that of a forward."""


def tokens_per_call(agreement: Agreement, depth: int) -> float:
    """Return the tokens per call when drafts of ``depth`` tokens follow each other in a text.

    ``agreement`` ``[drafts, ≥ depth]`` has a draft after each of the text's tokens. A draft begins
    after the target's own token that ended the previous one.
    """
    place, calls, tokens = 0, 0, 0
    while place < len(agreement):
        accepted = int(np.logical_and.accumulate(agreement[place, :depth]).sum())
        calls, tokens, place = calls + 1, tokens + accepted + 1, place + accepted + 1
    return tokens / calls


def acceptance_by_depth(agreements: Sequence[Agreement]) -> list[float]:
    """Return the share of tokens that are accepted where the preceding ones are, over all
    drafts."""
    accepted = np.logical_and.accumulate(np.concatenate(agreements), axis=1).sum(0)
    reached = [sum(map(len, agreements)), *accepted[:-1].tolist()]
    return [float(n) / of if of else 0.0 for n, of in zip(accepted, reached, strict=True)]


def _of_drafter(drafter: LanguageModel, text: JudgedText, depth: int) -> Agreement:
    logits = score(drafter, text.prompt, text.answer)
    agrees = np.array([text.is_drafted(n, row) for n, row in enumerate(logits)])
    return np.lib.stride_tricks.sliding_window_view(agrees[1:], depth)


class _Heads:
    """Heads on a target's plain forward."""

    def __init__(self, target: Any, folder: str) -> None:
        from specmesh.inference.models.digests import digest_of_weights
        from specmesh.inference.models.heads.registry import load_heads

        digest = digest_of_weights(target.model, target.config, wanted=True)
        self._target = target.model
        self._heads = load_heads(folder, target.model, digest)
        self.max_depth = self._heads.max_depth

    def agreement(self, text: JudgedText, depth: int) -> Agreement:
        import torch

        from specmesh.inference.models.heads.along_text import drafts_along

        tokens = torch.tensor([*text.prompt, *text.answer])
        found = np.zeros((len(text.answer) - depth, depth), np.bool_)
        guesses = drafts_along(self._heads, self._target, tokens, len(text.prompt))
        for number, logits in zip(range(depth), guesses, strict=False):
            for draft, row in enumerate(logits[: len(found)].float().numpy()):
                found[draft, number] = text.is_drafted(draft + number + 1, row)
        return found

    def step_ms(self) -> float:
        import torch

        from specmesh.inference.models.heads.eagle3.served import Eagle3Heads

        hidden, one = self._target.config.hidden_size, torch.ones(1).long()
        heads = self._heads
        if isinstance(heads, Eagle3Heads):
            states = heads.fuse(
                torch.randn(1, len(heads.layer_ids) * hidden).to(self._target.dtype)
            )
            attend = _attention_to_a_text(heads.kv_shape)
            return _median_ms(lambda: heads.logits(heads.read(one, states, one, attend)))
        states = heads.begin(torch.randn(1, hidden).to(self._target.dtype))
        return _median_ms(lambda: heads.step(states, one, one - 1))


def _attention_to_a_text(shape: KVShape) -> Attend:
    """Return the attention of tokens with themselves and random keys and values before them."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    size = (1, shape.kv_heads, _TIMED_TEXT_TOKENS, shape.head_dim)
    held = [torch.randn(size, dtype=shape.dtype) for _ in range(2)]

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys, values = (
            torch.cat([before, new], 2) for before, new in zip(held, (key, value), strict=True)
        )
        attended = scaled_dot_product_attention(query, keys, values, enable_gqa=True)
        return attended.transpose(1, 2)

    return attend


def _median_ms(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_TIMED_STEPS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return median(times) * 1e3


app = App()


@app.command()
def main(
    target: Model = None,
    heads: Annotated[
        list[str] | None,
        typer.Option(help="Folder of heads. May be repeated.", show_default="shipped"),
    ] = None,
    drafter: Annotated[
        str | None,
        typer.Option(help="Drafter: folder or Hugging Face id.", show_default="shipped"),
    ] = None,
    prompts: PromptsFile = None,
    num_prompts: NumPrompts = 20,
    tokens: Tokens = 128,
    depth: Annotated[int, typer.Option(min=1, help="Length of the longest draft.")] = 5,
    temperature: Temperatures = None,
    seed: Seed = SEED,
    threads: Threads = 1,
    json_: Json = False,
) -> None:
    """Measure which tokens of heads' and of a drafter's drafts the target accepts, by depth."""
    import torch

    from specmesh.inference.models.loading import read_model
    from specmesh.inference.models.transformers_model import TransformersModel

    torch.set_num_threads(threads)
    name = target or str(models.path(models.TARGET))
    drafter_name = drafter or str(models.path(models.DRAFTER))
    folders = heads or [str(models.path(models.HEADS))]
    try:
        engine = TransformersModel.load(name, dtype="float32", device="cpu")
        drafting = TransformersModel.load(drafter_name, dtype="float32", device="cpu")
        plain = read_model(name, "float32", "cpu", None)
        loaded = {folder: _Heads(plain, folder) for folder in folders}
    except ModelNotLoadable as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error
    for folder, each in loaded.items():
        if each.max_depth < depth:
            typer.echo(f"error: --depth: {folder} drafts {each.max_depth} tokens", err=True)
            raise typer.Exit(2)
    ids = tokenize(engine, read_prompts(prompts)[:num_prompts])

    def rows() -> Iterator[HeadsRow]:
        for each in temperature or TEMPERATURES:
            texts = _texts(engine, ids, Sampling(each, seed=seed), tokens)
            own = [_of_drafter(drafting, text, depth) for text in texts]
            yield _row(Path(drafter_name).name, each, own, _forward_ms(drafting, ids[0]))
            for folder, found in loaded.items():
                own = [found.agreement(text, depth) for text in texts]
                yield _row(Path(folder).name, each, own, found.step_ms())

    if json_:
        typer.echo(json.dumps({"depth": depth, "rows": [asdict(row) for row in rows()]}))
    else:
        _show(list(rows()), depth, Console(highlight=False))


def _texts(
    engine: LanguageModel, prompts: Sequence[Sequence[int]], sampling: Sampling, num_tokens: int
) -> list[JudgedText]:
    """Return the target's answers, each with its own seed."""
    samplings = [replace(sampling, seed=sampling.seed + n) for n in range(len(prompts))]
    answers = answer(engine, prompts, samplings, num_tokens)
    return [JudgedText(*each) for each in zip(prompts, answers, samplings, strict=True)]


def _forward_ms(model: LanguageModel, prompt: Sequence[int]) -> float:
    return _median_ms(lambda: score(model, prompt, (prompt[0],)))


def _row(
    drafter: str, temperature: float, agreements: Sequence[Agreement], step_ms: float
) -> HeadsRow:
    depth = agreements[0].shape[1]
    return HeadsRow(
        drafter=drafter,
        temperature=temperature,
        acceptance_by_depth=acceptance_by_depth(agreements),
        tokens_per_call=[
            float(np.mean([tokens_per_call(each, length) for each in agreements]))
            for length in range(1, depth + 1)
        ],
        step_ms=step_ms,
    )


def _show(rows: Sequence[HeadsRow], depth: int, console: Console) -> None:
    lengths = [str(length) for length in range(1, depth + 1)]
    for temperature in dict.fromkeys(row.temperature for row in rows):
        own = [row for row in rows if row.temperature == temperature]
        for title, field in (
            ("accepted by depth", "acceptance_by_depth"),
            ("tokens per call by length of drafts", "tokens_per_call"),
        ):
            table = make_table(f"Temperature {temperature:g}: {title}", "drafter", *lengths, "ms")
            for row in own:
                figures = [f"{figure:.3f}" for figure in getattr(row, field)]
                table.add_row(row.drafter, *figures, f"{row.step_ms:.2f}")
            console.print(table)


if __name__ == "__main__":
    app(prog_name="specmesh bench heads")
