"""Targets whose forwards take longer the more tokens they compute, from flat to steep.

A forward reads all weights once, and computes two operations for each weight and token. On a GPU
the slower of the two takes all of the time (a roofline), so forwards are flat up to the number of
tokens at which both take equally long. For an NVIDIA H100 SXM (3.35 TB/s; dense 989 TFLOP/s in
bfloat16, 1,979 in FP8), without anything that a real GPU loses:

- ``8b-h100``, 8 B weights in bfloat16: 16 GB / 3.35 TB/s = 4.8 ms; 16 GFLOP / 989 TFLOP/s =
  0.016 ms for each token; both take equally long with 295 tokens.
- ``70b-h100``, 70 B weights in FP8, because one H100 holds no more: 70 GB / 3.35 TB/s = 20.9 ms;
  140 GFLOP / 1,979 TFLOP/s = 0.071 ms for each token; equally long with 295 tokens.

The other names are the milliseconds of a forward and of each of its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from specmesh.simulation.law import Law

BANDWIDTH = 3.35e12
"""Bytes that an H100 SXM reads per second."""
BF16_FLOPS = 989e12
FP8_FLOPS = 1979e12
MOST_CALLS = 256
"""Calls that share a forward at most."""


@dataclass(frozen=True, slots=True)
class CrowdTarget:
    """A target: the time of its forwards, and how many calls share one at most."""

    law: Law
    batch: int = MOST_CALLS

    def scaled(self, share: float) -> Law:
        """Return the law of a smaller model of the same kind: ``share`` of the time at any size."""
        return replace(self.law, at_knots=tuple(share * each for each in self.law.at_knots))


def roofline(num_weights: float, weight_bytes: float, flops: float) -> Law:
    """Return the law of a GPU that reads the weights while it computes."""
    read_ms = 1e3 * num_weights * weight_bytes / BANDWIDTH
    token_ms = 1e3 * 2 * num_weights / flops
    crossover = read_ms / token_ms
    return Law((1.0, crossover, 2 * crossover), (read_ms, read_ms, 2 * read_ms))


def line(forward_ms: float, token_ms: float) -> Law:
    """Return the law of a forward that takes ``token_ms`` more for each token, its first one
    included."""
    return Law.fixed(forward_ms + token_ms, token_ms)


TARGETS: Mapping[str, CrowdTarget] = {
    "8b-h100": CrowdTarget(roofline(8e9, 2, BF16_FLOPS)),
    "70b-h100": CrowdTarget(roofline(70e9, 1, FP8_FLOPS)),
    "40+0": CrowdTarget(line(40, 0)),
    "30+2": CrowdTarget(line(30, 2)),
    "30+4": CrowdTarget(line(30, 4)),
    "10+5": CrowdTarget(line(10, 5)),
    "10+5-alone": CrowdTarget(line(10, 5), batch=1),
}
"""Targets by name: GPUs by arithmetic, lines from flat to steep as on CPUs, and one whose calls
share no forward."""
