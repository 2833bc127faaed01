"""The console script ``specmesh``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; without its packages, say how to get them."""
    try:
        from specmesh.cli.app import app
    except ModuleNotFoundError as error:
        sys.exit(f"specmesh: {error.name} is not installed: pip install 'specmesh[cli]'")
    app()
