"""``python -m specmesh.training``: make the shipped pair again, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from specmesh.models.corpus import standard_library


def main(
    sources: Annotated[
        Path | None,
        typer.Option("--corpus", help="Python source to train on; else the standard library"),
    ] = None,
    work_dir: Annotated[Path, typer.Option(help="Checkpoints and samples")] = Path("build/train"),
    output: Annotated[Path, typer.Option(help="Where both models go")] = Path("build/models"),
    target_steps: Annotated[int, typer.Option(min=1, help="Steps of 8,192 tokens")] = 1500,
    drafter_steps: Annotated[int, typer.Option(min=1, help="Steps of 8,192 tokens")] = 3000,
    sample_shards: Annotated[int, typer.Option(min=1, help="43,008 tokens each")] = 31,
    threads: Annotated[int, typer.Option(min=0, help="0: as many as there are cores")] = 0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Train the target, then its drafter; report losses and the acceptance rate.

    A run that was stopped goes on where it was when started again.
    """
    # Here, so that --help does not wait for them.
    import torch
    from transformers.utils import logging

    from specmesh.training.pipeline import TrainingPlan, WorkFolderError, run
    from specmesh.training.samples import SamplePlan

    console = Console(highlight=False)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if threads:
        torch.set_num_threads(threads)
    plan = TrainingPlan(
        sources=sources or standard_library(),
        work=work_dir,
        output=output,
        target_steps=target_steps,
        drafter_steps=drafter_steps,
        samples=SamplePlan(sample_shards, seed=seed),
        seed=seed,
    )
    try:
        found = run(plan, console)
    except WorkFolderError as error:
        console.print(f"error: {error}")
        raise typer.Exit(2) from error
    except KeyboardInterrupt as error:
        console.print("stopped; the same command goes on from here")
        raise typer.Exit(130) from error
    console.print(
        f"held-out loss: target {found.target.nats_per_token:.3f}, "
        f"drafter {found.drafter.nats_per_token:.3f} nats per token\n"
        f"acceptance alpha: {found.held_out.alpha:.3f} on held-out text, "
        f"{found.sampled_text.alpha:.3f} on the target's own; "
        f"greedy agreement {found.greedy_text.greedy:.3f}\n"
        f"written to {output}"
    )


if __name__ == "__main__":
    typer.run(main)
