"""What is said of a process that cannot start."""

from __future__ import annotations

import socket

import pytest

from specmesh.serving.startup import cannot_listen


def test_a_process_that_finds_its_port_taken_says_so_once_and_what_helps():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="while attempting to bind") as raised:
            socket.create_server(("127.0.0.1", port))
    assert str(cannot_listen("127.0.0.1", port, raised.value)) == (
        f"cannot listen on 127.0.0.1:{port}: address already in use; "
        "--host and --port choose another address"
    )


def test_a_process_whose_host_is_unknown_says_so():
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    said = str(cannot_listen("no-such-host", 8000, unknown))
    assert said.startswith("cannot listen on no-such-host:8000: name or service not known; ")
