"""Prompts for the demo, tests and benchmarks, cut from the held-out files."""

from __future__ import annotations

import hashlib
import io
import tokenize
from collections.abc import Iterator, Sequence

import numpy as np
from tokenizers import Tokenizer

from specmesh.models import Prompt
from specmesh.models.corpus import SourceFile

NUM_PROMPTS = 64
"""The number of prompts with which acceptance is measured, and the least that there must be."""
MOST_PROMPTS = 256
PROMPT_TOKENS = (64, 160)
ATTEMPTS_PER_CUT = 50


def choose_prompts(files: Sequence[SourceFile], tokenizer: Tokenizer) -> list[Prompt]:
    """Cut ``MOST_PROMPTS`` different prompts of ``PROMPT_TOKENS`` tokens (inclusive range) from all
    of ``files`` in turn; fewer if the files have no more. The first ``NUM_PROMPTS`` are in the
    order of their paths.

    A prompt begins with a line that is not blank and stops at the end of a statement inside a
    block, before the line break: the break and the next line's indentation share a token.
    """
    found: dict[str, Prompt] = {}
    cuts = {file.path: _cuts(file, tokenizer) for file in files}
    before = -1
    while before < len(found) < MOST_PROMPTS:
        before = len(found)
        for file in files:
            text = next(cuts[file.path], None) if file.path in cuts else None
            if text is None:
                cuts.pop(file.path, None)
            elif len(found) < MOST_PROMPTS:
                found.setdefault(text, Prompt(file.path, file.sha256, text))
    prompts = list(found.values())
    first = sorted(prompts[:NUM_PROMPTS], key=lambda prompt: prompt.path)
    return [*first, *prompts[NUM_PROMPTS:]]


def _cuts(file: SourceFile, tokenizer: Tokenizer) -> Iterator[str]:
    """Yield cuts endlessly, in an order fixed by the file's path; end if no cut fits."""
    lines = file.text.splitlines()
    ends = _statement_ends(file.text)
    digest = hashlib.blake2b(file.path.encode(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(digest, "big"))
    while ends:
        for _ in range(ATTEMPTS_PER_CUT):
            end = ends[int(rng.integers(len(ends)))]
            budget = int(rng.integers(PROMPT_TOKENS[0], PROMPT_TOKENS[1] + 1))
            text = _longest(lines, end, budget, tokenizer)
            if text:
                yield text
                break
        else:
            return


def _longest(lines: list[str], end: int, budget: int, tokenizer: Tokenizer) -> str:
    """Return the longest run of whole lines up to line ``end`` within ``budget`` tokens; "" if it
    has too few tokens."""
    best, size = "", 0
    for start in range(end - 1, -1, -1):
        text = "\n".join(lines[start:end])
        if len(tokens := tokenizer.encode(text).ids) > budget:
            break
        if lines[start].strip():
            best, size = text, len(tokens)
    return best if size >= PROMPT_TOKENS[0] else ""


def _statement_ends(text: str) -> list[int]:
    """Return the line numbers (from 1) where a statement inside a block ends; none if ``text``
    isn't Python."""
    ends, depth = [], 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            depth += (token.type == tokenize.INDENT) - (token.type == tokenize.DEDENT)
            if token.type == tokenize.NEWLINE and depth:
                ends.append(token.start[0])
    except (tokenize.TokenError, IndentationError):
        return []
    return ends
