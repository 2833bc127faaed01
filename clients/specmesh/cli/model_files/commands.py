"""``specmesh models sums``, ``fetch`` and ``verify``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.model_files import fetching
from specmesh.cli.model_files.sources import source_of
from specmesh.cli.model_files.sums import FILE, BadModelFiles, Sums


def _well_formed(digest: str) -> str:
    """Return ``digest`` as ``sums`` prints it."""
    if not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        raise typer.BadParameter("must be 64 hexadecimal digits")
    return digest.lower()


Digest = Annotated[
    str,
    typer.Option(
        metavar="SHA256",
        callback=_well_formed,
        help=f"Expect this digest of the model: the SHA-256 of its {FILE}, as 'sums' prints it.",
    ),
]


def sums(
    folder: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="Read the model in this folder.")
    ],
) -> None:
    """Write the SHA256SUMS of a model's files, and print the digest of the whole model."""

    def work() -> None:
        found = Sums.of(folder)
        (folder / FILE).write_text(found.text)
        # On standard error, because scripts take the digest from standard output.
        told = f"wrote {folder / FILE}; digest for 'models verify' and 'models fetch':"
        typer.echo(told, err=True)
        typer.echo(found.digest)

    _carry_out(work)


def verify(
    folder: Annotated[
        Path, typer.Argument(help="Check this folder, which holds a model and its SHA256SUMS.")
    ],
    digest: Digest,
) -> None:
    """Verify that a folder holds exactly the files of a model, complete and unaltered."""

    def work() -> None:
        found = Sums.parse((folder / FILE).read_text())
        found.expect(digest)
        found.check(folder)
        typer.echo(f"{folder}: {len(found.by_path)} files as listed")

    _carry_out(work)


def fetch(
    source: Annotated[
        str,
        typer.Argument(
            help="Fetch from this URL (https:// or http://), folder or Hugging Face id."
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(help="Write to this folder; correct files in it are kept.")
    ],
    digest: Digest,
    revision: Annotated[
        str,
        typer.Option(
            help="Fetch this branch, tag or commit of a Hugging Face id.",
            show_default="its main branch",
        ),
    ] = "",
    sums: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Read SHA256SUMS from this file, for a source without one, such as Hugging Face.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            help="Send the bearer token in this file to the source; or set SPECMESH_MODELS_TOKEN "
            "to the token itself.",
        ),
    ] = None,
) -> None:
    """Fetch a model and verify every file, skipping those already present; for init containers."""

    def work() -> None:
        token = os.environ.get("SPECMESH_MODELS_TOKEN", "")
        given = source_of(source, token_file.read_text().strip() if token_file else token, revision)
        found = fetching.kept_sums(folder, digest)
        if found is None:
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
