"""``specmesh calibrate tree``: the best draft tree of each width for a pair of models."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from rich.console import Console

from specmesh.cli.output_files import writable
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.calibrated import CalibratedTree, CalibratedTrees
from specmesh.decoding.trees.plan import MAX_WIDTH
from specmesh.decoding.trees.replay import Replay
from specmesh.decoding.trees.search import best_trees, expected_length, places
from specmesh.decoding.trees.shape import RankPath, TreeShape
from specmesh.inference.model import LanguageModel, ModelNotLoadable
from specmesh.tools.calibrate.pair import CalibrationOptions
from specmesh.tools.calibrate.ranks import RankedGuesses
from specmesh.tools.calibrate.tree_report import CalibratedTreeRow, show
from specmesh.tools.kit.options import Json, Tokens

NUM_RANDOM = 20
"""Number of random trees of each width."""

Texts = tuple[Replay, Replay]
TEXTS = ("calibration", "held-out")
"""The text that trees are fitted to, and other text."""


def tree(
    *,
    asked: CalibrationOptions,
    heads: Annotated[
        str | None,
        typer.Option(
            help="Folder of heads to measure instead of the drafter.", show_default="none"
        ),
    ] = None,
    tokens: Tokens = 256,
    output: Annotated[
        Path | None,
        typer.Option(
            help="File to write, for --trees of an orchestrator.",
            show_default="none",
            callback=writable,
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Find the tree of each width up to 64 with the longest accepted paths.

    Trees are fitted on the first half of the held-out prompts; the second half shows their quality
    on other text. No file has prompts in both.
    """
    if heads is not None and output is not None:
        reason = "strategy 'heads' grows its own trees and uses no calibrated ones; leave out"
        raise typer.BadParameter(f"{reason} --output or --heads", param_hint="--output")
    try:
        target, drafter = asked.load_pair()
        guesses = _guesses(drafter, heads, asked.target)
    except ModelNotLoadable as error:
        typer.echo(f"specmesh: {error}", err=True)
        raise typer.Exit(2) from error
    texts = {
        each: _replays(target, guesses, asked.prompts_in_halves(), each, tokens)
        for each in asked.temperatures
    }
    trees = {each: best_trees(own, MAX_WIDTH) for each, (own, _) in texts.items()}
    if output is not None:
        written = _calibrated(target.description.weights_digest, guesses.digest, texts, trees)
        output.write_text(written.to_json() + "\n", encoding="utf-8")
    rows = list(_rows(texts, trees))
    if json_:
        typer.echo(json.dumps({"rows": [asdict(row) for row in rows]}))
    else:
        show(rows, Console())


def _guesses(drafter: LanguageModel, heads: str | None, target: str) -> RankedGuesses:
    from specmesh.tools.calibrate.ranks import DrafterGuesses

    if heads is None:
        return DrafterGuesses(drafter)
    from specmesh.tools.calibrate.head_ranks import HeadGuesses

    return HeadGuesses(heads, target)


def _replays(
    target: LanguageModel,
    guesses: RankedGuesses,
    halves: Sequence[Sequence[str]],
    temperature: float,
    num_tokens: int,
) -> Texts:
    from specmesh.inference.offline import tokenize
    from specmesh.tools.calibrate.ranks import collect

    calibration, held_out = (
        # Each prompt has its own seed; those of the two halves must not overlap.
        Replay(
            collect(
                target,
                guesses,
                tokenize(target, texts),
                Sampling(temperature, seed=number << 32),
                num_tokens,
            )
        )
        for number, texts in enumerate(halves)
    )
    return calibration, held_out


def _calibrated(
    target_digest: str,
    drafter_digest: str,
    texts: Mapping[float, Texts],
    trees: Mapping[float, Sequence[TreeShape]],
) -> CalibratedTrees:
    return CalibratedTrees(
        target_digest,
        drafter_digest,
        {
            temperature: tuple(
                CalibratedTree(each, texts[temperature][0].acceptance_length(each)) for each in own
            )
            for temperature, own in trees.items()
        },
    )


def _rows(
    texts: Mapping[float, Texts], trees: Mapping[float, Sequence[TreeShape]]
) -> Iterator[CalibratedTreeRow]:
    for temperature, replays in texts.items():
        accuracies = replays[0].accuracies()
        for text, replay in zip(TEXTS, replays, strict=True):
            for width, best in enumerate(trees[temperature], start=1):
                others = [_random_tree(width, replay.max_depth, n) for n in range(NUM_RANDOM)]
                yield CalibratedTreeRow(
                    text=text,
                    temperature=temperature,
                    width=width,
                    expected=expected_length(accuracies, best),
                    calibrated=replay.acceptance_length(best),
                    chain=replay.acceptance_length(TreeShape.chain(min(width, replay.max_depth))),
                    random=fmean(map(replay.acceptance_length, others)),
                )


@cache
def _random_tree(width: int, max_depth: int, seed: int) -> TreeShape:
    """Return a tree grown node by node, each at a place drawn uniformly from all possible ones."""
    rng = random.Random(f"{width} {seed}")  # noqa: S311 - a report must repeat
    tree: set[RankPath] = set()
    while len(tree) < width:
        tree.add(rng.choice(sorted(places(tree, max_depth))))
    return TreeShape.of(tree)
