"""Figures that tests measure and hardly assert, printed below the results."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

FIGURE = "figure"


@pytest.fixture
def tell(record_property) -> Iterator[object]:
    """Adds a line to those that are shown once all tests have run."""
    return lambda line: record_property(FIGURE, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.getreports(kind)]
    lines = [
        line
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, line in report.user_properties
        if name == FIGURE
    ]
    if lines:
        terminalreporter.section("figures")
        terminalreporter.write_line("\n".join(sorted(lines)))
