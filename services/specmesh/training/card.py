"""The model card: a description of the pair, its measurements, and its limits."""

from __future__ import annotations

from dataclasses import dataclass

from specmesh.models import DRAFTER, TARGET
from specmesh.training.evaluate import (
    CONTINUATION_TOKENS,
    GAMMAS,
    SAMPLED_TEMPERATURE,
    WINDOW_TOKENS,
    Acceptance,
    Evaluation,
)
from specmesh.training.heldout import NUM_PROMPTS


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of the weights. ``corpus`` is the name of the folder with the source files, empty
    for the standard library of ``python``."""

    corpus: str
    python: str
    training_files: int
    held_out_files: int
    training_tokens: int
    held_out_tokens: int
    target_parameters: int
    drafter_parameters: int
    target_steps: int
    drafter_steps: int


def card(provenance: Provenance, evaluation: Evaluation) -> str:
    """Return the model card in Markdown; all its numbers are measured, none is typed in."""
    return f"""\
# {TARGET} and {DRAFTER}

A target and its drafter for trying specmesh: small enough to ship and to run on one CPU
core, trained by the project's own script, and real: what is measured with them is a
language model's behaviour, not a stand-in's.

| | `{TARGET}` | `{DRAFTER}` |
| --- | --- | --- |
| role | target | drafter |
| parameters | {provenance.target_parameters:,} | {provenance.drafter_parameters:,} |
| held-out loss, nats per token | {evaluation.target.nats_per_token:.3f} \
| {evaluation.drafter.nats_per_token:.3f} |
| held-out loss, bits per byte | {evaluation.target.bits_per_byte:.3f} \
| {evaluation.drafter.bits_per_byte:.3f} |

Both are Llama-architecture decoders in the Hugging Face layout (bf16 safetensors, tied
embeddings, {WINDOW_TOKENS:,} tokens of context) with one byte-level BPE vocabulary of 4,096
tokens. They load through `AutoModelForCausalLM` and `AutoTokenizer`.

## Data

{_origin(provenance)}: {provenance.training_files:,} files to train on
({provenance.training_tokens:,} tokens), {provenance.held_out_files} held out
({provenance.held_out_tokens:,} tokens). The split is by a hash of the file's name; files
that share over a twentieth of their four-line runs with others are never held out.
`held_out_files.json` lists the held-out
files with their digests. Neither model, nor the tokenizer, has seen them. The prompts in
`heldout_prompts.json` are cut from them.

{_licence(provenance)}

## Training

`python -m specmesh.training{" --corpus FOLDER" * bool(provenance.corpus)}` \
makes the pair again, offline, on a CPU. The target has
{provenance.target_steps:,} steps of 8,192 tokens. The drafter has
{provenance.drafter_steps:,}: plain language modelling, then forward KL from the target, then
mostly total variation (acceptance is 1 - TV), the last two on training text and on the
target's own continuations of it. Another processor rounds differently: expect close
numbers, not the same bits.

{_acceptance(evaluation)}
## Limits

A toy-sized code model. It writes text shaped like {_likeness(provenance)}: locally
plausible, often wrong, and in greedy decoding it soon repeats itself, which also makes
greedy text easy to draft. It knows no language but Python, follows no instructions, and
is not for use as a code assistant. It may recite its training text. Acceptance with
another pair, or on other text, says nothing about these numbers, nor they about it.
"""


def _origin(provenance: Provenance) -> str:
    if provenance.corpus:
        return f"The Python files of the folder `{provenance.corpus}`"
    return f"""\
The standard library of Python {provenance.python}, its tests included, without third-party
packages"""


def _licence(provenance: Provenance) -> str:
    """Return what is known of the licence of the source: nothing of a corpus of the user's own."""
    if provenance.corpus:
        return """\
The prompts are excerpts from these files. The training script knows nothing of their licence."""
    return """\
The source is under the Python Software Foundation License Version 2, copyright Python
Software Foundation; the prompts are excerpts from it under that licence."""


def _likeness(provenance: Provenance) -> str:
    return "the files of its corpus" if provenance.corpus else "the Python standard library"


def _acceptance(evaluation: Evaluation) -> str:
    """Return the section on how often the target accepts the drafter's tokens."""
    return f"""\
## Acceptance

`alpha` is E[sum min(p, q)], the chance that rejection sampling keeps a drafted token, at
temperature 1 and {SAMPLED_TEMPERATURE}; `greedy` is how often both models' likeliest tokens
are equal. The target's own text is {CONTINUATION_TOKENS} tokens after each of the
{NUM_PROMPTS} held-out prompts: these are the positions that serving meets. Weights as
shipped, computed in float32.

| text | tokens | alpha, T=1 | alpha, T={SAMPLED_TEMPERATURE} | greedy |
| --- | --- | --- | --- | --- |
{_row("held-out files", evaluation.held_out)}
{_row("the target's, greedy", evaluation.greedy_text)}
{_row(f"the target's, T={SAMPLED_TEMPERATURE}", evaluation.sampled_text)}

Expected tokens per verification (Leviathan et al. 2023, Eq. 1, which takes acceptances as
independent) on the target's own text:

| draft length | {" | ".join(map(str, GAMMAS))} |
| --- |{" --- |" * len(GAMMAS)}
| greedy | {_figures(evaluation.greedy_tokens_per_round)} |
| rejection, T={SAMPLED_TEMPERATURE} | {_figures(evaluation.sampled_tokens_per_round)} |
"""


def _row(text: str, rates: Acceptance) -> str:
    figures = _figures((rates.alpha, rates.alpha_sampled, rates.greedy), 3)
    return f"| {text} | {rates.num_tokens:,} | {figures} |"


def _figures(values: tuple[float, ...], digits: int = 2) -> str:
    return " | ".join(f"{value:.{digits}f}" for value in values)
