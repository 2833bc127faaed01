"""The gateway process: ``specmesh serve gateway``."""

from __future__ import annotations

import sys

from specmesh.gateway.app import make_app
from specmesh.gateway.http.server import HttpServer
from specmesh.gateway.mesh import KnownOrchestrators
from specmesh.gateway.settings import GatewaySettings
from specmesh.serving.identity.plaintext import check_plaintext_calls
from specmesh.serving.identity.watched import UnusableFile
from specmesh.serving.process.command_line import parse
from specmesh.serving.process.life_cycle import ALONE, Supervision, run_process
from specmesh.serving.process.resources import use_one_heap
from specmesh.serving.process.server_loop import run
from specmesh.serving.process.supervisor import supervise
from specmesh.serving.startup import CannotStart

ROLE = "gateway"


def make_server(settings: GatewaySettings) -> HttpServer:
    """Return the gateway, which does not listen yet. Raises ``CannotStart``."""
    if settings.mesh_ca is None:
        check_plaintext_calls(settings, settings.targets, "--mesh-ca")
    try:
        mesh = KnownOrchestrators(settings)
        app = make_app(settings, mesh)
    except UnusableFile as error:
        raise CannotStart(str(error)) from error
    return HttpServer(settings, app, mesh)


async def serve(settings: GatewaySettings, supervision: Supervision = ALONE) -> int:
    """Serve until the process is signalled to stop; return its exit status."""
    use_one_heap()
    return await run_process(settings, ROLE, lambda: make_server(settings), supervision)


def work(settings: GatewaySettings, supervision: Supervision) -> int:
    """Run a process that serves until it is signalled to stop; return its exit status."""
    return run(serve(settings, supervision))


if __name__ == "__main__":
    settings = parse(GatewaySettings, sys.argv[1:], "specmesh serve gateway")
    sys.exit(supervise(settings, ROLE, work))
