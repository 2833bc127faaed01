"""Says, as JSON, how ``python -m MODULE --help`` ended for each MODULE, and what it said.

Run by the Python of an environment under test. Each has a process of its own, forked by one that
has imported what takes long and is not ours. Collections would scan all that again and again, and
copy it.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
from contextlib import suppress
from importlib import import_module
from tempfile import TemporaryFile

Helped = tuple[int, str, str]
"""The exit status, standard output and standard error."""

SLOW = (
    "aiohttp",
    "cryptography.x509",
    "grpc",
    "opentelemetry.sdk.trace",
    "pydantic_settings",
    "redis",
    "rich.markdown",
    "transformers.models.auto.modeling_auto",
    "typer",
)
"""To import; each where an extra brings it."""

gc.disable()
for name in SLOW:
    with suppress(ModuleNotFoundError):
        import_module(name)
gc.freeze()


def helped(module: str) -> Helped:
    """Run one."""
    with TemporaryFile() as output, TemporaryFile() as errors:
        child = os.fork()
        if not child:
            os.dup2(output.fileno(), sys.stdout.fileno())
            os.dup2(errors.fileno(), sys.stderr.fileno())
            sys.argv = [module, "--help"]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            sys.exit()
        _, status = os.waitpid(child, 0)
        said = [file.seek(0) or file.read().decode() for file in (output, errors)]
        return os.waitstatus_to_exitcode(status), *said


json.dump([helped(module) for module in sys.argv[1:]], sys.stdout)
