"""The addresses of orchestrators that a gateway may be given."""

from __future__ import annotations

import pytest

from specmesh.gateway.settings import GatewaySettings
from specmesh.serving.process.command_line import parse


def test_addresses_without_a_port_have_the_orchestrators():
    settings = GatewaySettings(orchestrators="localhost, [::1],,dns:///mesh.svc:7")
    assert settings.targets == ["localhost:50051", "[::1]:50051", "dns:///mesh.svc:7"]


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("127.0.0.1:99999", "port '99999' is not from 1 to 65535"),
        ("localhost:0", "port '0' is not from 1 to 65535"),
        ("http://x:1", "target 'http://x:1' is a URL"),
        (",", "must name at least one address"),
    ],
)
def test_what_is_no_address_is_refused_in_one_line_by_the_option(address, told, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(GatewaySettings, ["--orchestrators", address], "gateway")
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gateway: error: --orchestrators (SPECMESH_GATEWAY__ORCHESTRATORS): ")
    assert told in line
