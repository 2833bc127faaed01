"""``specmesh train`` or ``python -m specmesh.training``: trains the shipped pair anew, or heads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from specmesh import models
from specmesh.models.corpus import standard_library
from specmesh.serving.process.typer_app import App

app = App(
    help="Train the shipped model pair, or heads for any target.",
)

Corpus = Annotated[
    Path | None,
    typer.Option(
        "--corpus",
        exists=True,
        file_okay=False,
        help="Folder to train on; by default Python's standard library",
    ),
]
Threads = Annotated[int, typer.Option(min=0, help="Number of threads; 0: one per core")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of weights, data and samples")]


class HeadKind(StrEnum):
    """Architectures of heads."""

    EAGLE3 = "eagle3"
    MEDUSA = "medusa"
    RECURRENT = "recurrent"


@app.callback(invoke_without_command=True)
def pair(
    context: typer.Context,
    sources: Corpus = None,
    work_dir: Annotated[Path, typer.Option(help="Folder for checkpoints and samples")] = Path(
        "build/train"
    ),
    output: Annotated[Path, typer.Option(help="Folder for both models")] = Path("build/models"),
    target_steps: Annotated[int, typer.Option(min=1, help="Steps of 8,192 tokens")] = 1500,
    drafter_steps: Annotated[int, typer.Option(min=1, help="Steps of 8,192 tokens")] = 3000,
    sample_shards: Annotated[int, typer.Option(min=1, help="Shards of 43,008 tokens")] = 31,
    threads: Threads = 0,
    seed: Seed = 0,
) -> None:
    """Train the target, then its drafter; report losses and the acceptance rate.

    A stopped run continues where it was when it is started again.
    """
    if context.invoked_subcommand is not None:
        return
    # Imported here, so that --help does not wait for them.
    from specmesh.training.pipeline import CorpusTooSmallError, TrainingPlan, WorkFolderError, run
    from specmesh.training.samples import SamplePlan

    console = _prepare(threads)
    plan = TrainingPlan(
        sources=sources or standard_library(),
        work=work_dir,
        output=output,
        target_steps=target_steps,
        drafter_steps=drafter_steps,
        samples=SamplePlan(sample_shards, seed=seed),
        seed=seed,
    )
    with _refusals(console, CorpusTooSmallError, WorkFolderError, OSError):
        found = run(plan, console)
    console.print(
        f"held-out loss: target {found.target.nats_per_token:.3f}, "
        f"drafter {found.drafter.nats_per_token:.3f} nats per token\n"
        f"acceptance alpha: {found.held_out.alpha:.3f} on held-out text, "
        f"{found.sampled_text.alpha:.3f} on the target's own; "
        f"greedy agreement {found.greedy_text.greedy:.3f}\n"
        f"written to {output}"
    )


@app.command()
def heads(
    target: Annotated[
        str | None, typer.Option(help="Folder or Hugging Face id", show_default="shipped")
    ] = None,
    kind: Annotated[HeadKind, typer.Option(help="Architecture")] = HeadKind.EAGLE3,
    sources: Corpus = None,
    files: Annotated[str, typer.Option(help="Pattern of file names in the corpus")] = "*.py",
    work_dir: Annotated[Path, typer.Option(help="Folder for checkpoints and texts")] = Path(
        "build/train"
    ),
    output: Annotated[Path, typer.Option(help="Folder for the heads")] = Path("build/heads"),
    depth: Annotated[int, typer.Option(min=1, max=16, help="Tokens per draft")] = 5,
    inner: Annotated[
        int, typer.Option(min=0, help="Width of the head's block; 0: twice the target's")
    ] = 0,
    vocabulary: Annotated[
        int, typer.Option(min=0, help="Number of most frequent tokens to guess; 0: all")
    ] = 2048,
    steps: Annotated[int, typer.Option(min=2, help="Steps of --sequences times 512 tokens")] = 3000,
    sequences: Annotated[int, typer.Option(min=1, help="Windows of text per step")] = 4,
    shards: Annotated[int, typer.Option(min=1, help="Shards of 16,384 tokens by the target")] = 32,
    threads: Threads = 0,
    seed: Seed = 0,
) -> None:
    """Train heads, which draft from the target's hidden states, inside its verifier.

    The target first writes texts of its own. A stopped run continues where it was when it is
    started again.
    """
    from specmesh.inference.model import ModelNotLoadable
    from specmesh.training.heads.generations import GenerationPlan
    from specmesh.training.heads.pipeline import HeadsPlan, run
    from specmesh.training.heads.texts import CorpusUnfit

    console = _prepare(threads)
    plan = HeadsPlan(
        target=target or str(models.path(models.TARGET)),
        kind=kind.value,
        sources=sources or standard_library(),
        pattern=files,
        work=work_dir,
        output=output,
        max_depth=depth,
        inner_size=inner,
        num_guessed=vocabulary,
        steps=steps,
        batch_sequences=sequences,
        sequence_tokens=512,
        generations=GenerationPlan(shards, seed=seed),
        seed=seed,
    )
    with _refusals(console, ModelNotLoadable, CorpusUnfit, OSError):
        found = run(plan, console)
    table = Table("depth", "greedy", "T=0.8", title="Acceptance on held-out text")
    for each in found:
        table.add_row(str(each.depth), f"{each.greedy:.3f}", f"{each.sampled:.3f}")
    console.print(table)
    console.print(f"written to {output}; 'specmesh bench heads --heads {output}' measures them")


def _prepare(threads: int) -> Console:
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if threads:
        torch.set_num_threads(threads)
    return Console(highlight=False)


@contextmanager
def _refusals(console: Console, *refusals: type[Exception]) -> Iterator[None]:
    """Report ``refusals``, and how to continue after Ctrl-C."""
    try:
        yield
    except refusals as error:
        console.print(f"error: {error}")
        raise typer.Exit(2) from error
    except KeyboardInterrupt as error:
        console.print("stopped; the same command continues from here")
        raise typer.Exit(130) from error


if __name__ == "__main__":
    app(prog_name="specmesh train")
