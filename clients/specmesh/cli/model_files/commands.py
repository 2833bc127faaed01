"""``specmesh models sums``, ``fetch`` and ``verify``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.model_files import fetching
from specmesh.cli.model_files.sources import source_of
from specmesh.cli.model_files.sums import FILE, BadModelFiles, Sums

Digest = Annotated[
    str,
    typer.Option(
        metavar="SHA256", help=f"Of the model: the SHA-256 of its {FILE}, as 'sums' prints it."
    ),
]


def sums(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="Of one model.")],
) -> None:
    """List a model's files in its SHA256SUMS, and print the digest of all of it."""

    def work() -> None:
        found = Sums.of(folder)
        (folder / FILE).write_text(found.text)
        typer.echo(found.digest)

    _carry_out(work)


def verify(
    folder: Annotated[Path, typer.Argument(help="Of one model, with its SHA256SUMS.")],
    digest: Digest,
) -> None:
    """Check that a folder holds a model, whole and unaltered, and nothing else."""

    def work() -> None:
        found = Sums.parse((folder / FILE).read_text())
        found.expect(digest)
        found.check(folder)
        typer.echo(f"{folder}: {len(found.by_path)} files as listed")

    _carry_out(work)


def fetch(
    source: Annotated[
        str, typer.Argument(help="https://..., http://..., a folder or a Hugging Face id.")
    ],
    folder: Annotated[Path, typer.Argument(help="Where to; what is there stays.")],
    digest: Digest,
    revision: Annotated[
        str,
        typer.Option(
            help="Branch, tag or commit of a Hugging Face id.", show_default="its main branch"
        ),
    ] = "",
    sums: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The SHA256SUMS of a source that has none, such as a hub."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            help="File with a bearer token for the source; or the token itself as "
            "SPECMESH_MODELS_TOKEN.",
        ),
    ] = None,
) -> None:
    """Fetch a model, and check every file: for an init container. Done at once if it is there."""

    def work() -> None:
        token = os.environ.get("SPECMESH_MODELS_TOKEN", "")
        given = source_of(source, token_file.read_text().strip() if token_file else token, revision)
        found = Sums.parse(sums.read_text()) if sums else fetching.read_sums(given)
        found.expect(digest)
        fetching.fetch(given, found, folder, typer.echo)

    _carry_out(work)


def _carry_out(work: Callable[[], None]) -> None:
    try:
        work()
    except (BadModelFiles, OSError, UnicodeDecodeError) as error:
        typer.echo(f"specmesh: {error}", err=True)
        raise typer.Exit(ExitStatus.FAILED) from error
