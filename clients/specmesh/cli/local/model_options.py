"""The options that say which models a mesh on this machine serves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from specmesh import models
from specmesh.cli.local.checks import (
    check_backend,
    check_drafters,
    check_folder,
    check_model,
    check_template,
)
from specmesh.cli.local.models import DRAFTER_BACKENDS, EngineBackend, RealModels

_PANEL = "Models"

HeadsFolder = Annotated[
    Path | None,
    typer.Option(
        "--heads",
        help="Load heads trained for the target from this folder.",
        show_default="the shipped heads, if any, for the shipped target",
        callback=check_folder,
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """A target and its drafters, by default the shipped ones."""

    help_panel: ClassVar = _PANEL

    target: Annotated[
        str | None,
        typer.Option(
            help="Load the target from this folder or Hugging Face id.",
            show_default="the shipped target",
            callback=check_model,
        ),
    ] = None
    drafter: Annotated[
        list[str] | None,
        typer.Option(
            help="Load a drafter from this folder or Hugging Face id, or use one without a model: "
            f"{', '.join(DRAFTER_BACKENDS)}. Repeat the option for several, the best first.",
            show_default="the shipped drafter",
            callback=check_drafters,
        ),
    ] = None

    def real_models(
        self,
        threads: int,
        heads: Path | None = None,
        backend: EngineBackend = EngineBackend.TRANSFORMERS,
    ) -> RealModels:
        """Return the models. The shipped heads fit only the shipped target in the transformers
        engine."""
        has_own = self.target is None and backend is EngineBackend.TRANSFORMERS
        return RealModels(
            self.target or str(models.path(models.TARGET)),
            tuple(self.drafter or (str(models.path(models.DRAFTER)),)),
            threads,
            heads=heads or (models.heads() if has_own else None),
            backend=backend,
        )

    @property
    def calibration(self) -> Path | None:
        """The shipped calibration if both models are the shipped ones; it fits no others."""
        return None if self.target or self.drafter else models.CALIBRATION


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """The models of a mesh, and how they are loaded."""

    help_panel: ClassVar = _PANEL

    pair: PairOptions
    revision: Annotated[
        str,
        typer.Option(
            help="Use this branch, tag or commit of a target from Hugging Face.",
            show_default="the main branch",
        ),
    ] = ""
    drafter_revision: Annotated[
        list[str] | None,
        typer.Option(
            help="Use this branch, tag or commit of a drafter from Hugging Face; repeat the option "
            "for each drafter that is a model, in their order.",
            show_default="the main branch",
        ),
    ] = None
    backend: Annotated[
        EngineBackend,
        typer.Option(
            help="Run the target in this engine; vllm must be installed in this environment.",
            callback=check_backend,
        ),
    ] = EngineBackend.TRANSFORMERS
    drafter_backend: Annotated[
        EngineBackend,
        typer.Option(help="Run drafters that are models in this engine.", callback=check_backend),
    ] = EngineBackend.TRANSFORMERS
    heads: HeadsFolder = None
    chat_template: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Render chats with this Jinja template.",
            show_default="the target's own",
            callback=check_template,
        ),
    ] = None

    def real_models(self, threads: int) -> RealModels:
        """Return the models, of which each process uses ``threads``. Raises BadParameter."""
        chosen = replace(
            self.pair.real_models(threads, self.heads, self.backend),
            chat_template=self.chat_template,
            drafter_backend=self.drafter_backend,
            revision=self.revision,
            drafter_revisions=tuple(self.drafter_revision or ()),
        )
        check_revisions(chosen)
        return chosen


def check_revisions(models: RealModels) -> None:
    """Raise BadParameter for a revision of a folder, or for a wrong number of them."""
    named = [name for name in models.drafter_names if name not in DRAFTER_BACKENDS]
    revisions = models.drafter_revisions
    if revisions and len(revisions) != len(named):
        raise typer.BadParameter(
            f"--drafter-revision is given {len(revisions)} times, but the number of drafters that "
            f"are models is {len(named)}"
        )
    pairs = [("--revision", models.target)] if models.revision else []
    pairs += [("--drafter-revision", name) for name in named[: len(revisions)]]
    for option, name in pairs:
        if Path(name).exists():
            raise typer.BadParameter(f"{option} is for Hugging Face ids, but {name!r} is a folder")
