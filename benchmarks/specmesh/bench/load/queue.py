"""The queue M/D/1: Poisson arrivals, a fixed service time, one server. Waits exclude the service.

Closed forms: Erlang 1909, as in Gross et al., "Fundamentals of Queueing Theory", 4th ed., 2008;
Lindley 1952 for given arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Md1:
    """A queue at utilisation ``rho``, in [0, 1), with a service of ``service_s`` seconds."""

    rho: float
    service_s: float

    @property
    def rate(self) -> float:
        """Return arrivals per second."""
        return self.rho / self.service_s

    @property
    def mean_wait_s(self) -> float:
        """Return ρ s / (2 (1 − ρ)), by Pollaczek and Khinchine."""
        return self.rho * self.service_s / (2 * (1 - self.rho))

    def wait_cdf(self, wait_s: float) -> float:
        """Return the share of waits up to ``wait_s``. Its terms alternate, so it is accurate only
        to some twenty services."""
        total = 0.0
        for number in range(int(wait_s / self.service_s) + 1):
            left = self.rate * (wait_s - number * self.service_s)
            total += (-left) ** number / math.factorial(number) * math.exp(left)
        return (1 - self.rho) * total

    def wait_percentile_s(self, percent: float) -> float:
        """Return the percentile of waits, by bisection."""
        low, high = 0.0, self.service_s
        while self.wait_cdf(high) < percent / 100:
            high *= 2
        while high - low > 1e-6 * self.service_s:
            middle = (low + high) / 2
            low, high = (low, middle) if self.wait_cdf(middle) >= percent / 100 else (middle, high)
        return high


def waits_s(arrivals_s: Iterable[float], service_s: float) -> Iterator[float]:
    """Yield the wait of each of these arrivals for one server, by Lindley's recursion."""
    free_s = -math.inf
    for at_s in arrivals_s:
        begins_s = max(at_s, free_s)
        yield begins_s - at_s
        free_s = begins_s + service_s
