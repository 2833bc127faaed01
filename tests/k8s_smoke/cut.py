"""A pod that nobody reaches, and that reaches nobody: packets are dropped in its own namespace, so
that nothing is refused and everyone has to find out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.k8s_smoke.podman import CommandFailed, run
from tests.k8s_smoke.pods import Pod
from tests.k8s_smoke.steps import say

_TABLE = "specmesh_smoke"
_RULES = f"""
table inet {_TABLE} {{
  chain in  {{ type filter hook input priority 0; policy drop; iif lo accept; }}
  chain out {{ type filter hook output priority 0; policy drop; oif lo accept; }}
}}
"""


@contextmanager
def cut_off(pod: Pod) -> Iterator[None]:
    """Drop every packet from and to ``pod`` while the block lasts."""
    inside = ("nsenter", "--target", str(pod.process), "--net")
    run(*inside, "nft", "-f", "-", given=_RULES)
    try:
        yield
    finally:
        try:
            run(*inside, "nft", "delete", "table", "inet", _TABLE)
        except CommandFailed as error:  # the pod, and its namespace with it, may be gone
            say(f"     {error}")
