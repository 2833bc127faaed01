"""The tables of ``specmesh simulate``, made of its JSON object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from rich.console import Console

from specmesh.tools.kit.tables import make_table
from specmesh.tools.simulate.modes import COLUMNS

Found = Mapping[str, Any]
_SHORT = {
    "autoregressive": "non-SI",
    "speculative": "SI",
    "dsi": "DSI",
    "branch-prediction": "BP",
}

Show = Callable[[Found, Console], None]


def grid(found: Found, console: Console) -> None:
    """Print the extremes of each comparison."""
    title = f"Speed-ups over {len(found['cells'])} drafters (latency, acceptance)"
    table = make_table(title, "", "least", "at", "most", "at", "slower in")
    for name, each in found["summary"].items():
        table.add_row(
            name,
            f"{each['min']:.3f}×",
            "{:g}, {:g}".format(*each["min_at"]),
            f"{each['max']:.2f}×",
            "{:g}, {:g}".format(*each["max_at"]),
            str(each["num_cells_slower"]),
        )
    console.print(table)
    console.print(f"{found['wall_s']:.1f} s")
    _files(found, console)


def table2(found: Found, console: Console) -> None:
    """Print the seconds at the best lookahead, and DSI over SI beside the published ratio."""
    title = f"Seconds for {found['num_tokens']} tokens at the best lookahead"
    ratios_at = ("DSI/SI", "at 1", "at 5", "at 10", "paper")
    table = make_table(title, "target, dataset", *_SHORT.values(), *ratios_at)
    for row in found["rows"]:
        ratio = row["dsi_over_si"]
        ratios = [ratio["best"], *(ratio[f"lookahead_{k}"] for k in (1, 5, 10))]
        table.add_row(
            f"{row['target']}, {row['dataset']}",
            *(f"{row['best'][name]['mean_s']:.3f}" for name in _SHORT),
            *(f"{each:.2f}×" for each in (*ratios, row["published_dsi_over_si"])),
        )
    console.print(table)


def modes(found: Found, console: Console) -> None:
    """Print the seconds by mode and drafter."""
    title = f"Median seconds for {found['num_tokens']} tokens"
    table = make_table(title, "mode", "α", "Σ p·q", "accepted", *_SHORT.values())
    for row in found["rows"]:
        table.add_row(
            row["mode"],
            *(f"{row[name]:.4g}" for name in ("alpha", "overlap")),
            f"{row['acceptance']:.2f}",
            *(f"{row[name]:.2f}" for name in COLUMNS),
        )
    console.print(table)


def branches(found: Found, console: Console) -> None:
    """Print Tables 3 and 4, the paper's statements about them, and Figure 12."""
    columns = ("small", "target", "α", "n", "SI", "BP", "Eq. 8", "+ bonus", "clock")
    title = "Tables 3 and 4: tokens/s, as published and predicted"
    table = make_table(title, *columns, "hits needed")
    for row in found["tables_3_and_4"]:
        numbers = ("speculative_tokens_per_s", "branch_tokens_per_s", "branch_eq8")
        table.add_row(
            *(row["small"], row["target"], f"{row['alpha']:.3f}", str(row["n"])),
            *(f"{row[name]:.2f}" for name in (*numbers, "branch_closed", "branch_clock")),
            f"{row['published_hit_rate']:.2f}",
        )
    console.print(table)
    for shape, holds in found["shapes"].items():
        console.print(f"{'yes' if holds else 'no ':3} {shape.replace('_', ' ')}")
    difference = found["largest_difference"]
    console.print(f"Figures 5-7: closed forms and clock differ by at most {difference:.1%}")
    figure = make_table(
        f"Figure 12: the exhaustive method, α = {found['figure_12']['alpha']:.3f}",
        *("n", "tokens/s, one branch", "tokens/s, all", "times as many drafted tokens"),
    )
    for point in found["figure_12"]["points"]:
        factor = point["compute_factor"]
        figure.add_row(
            str(point["n"]),
            f"{point['branch_tokens_per_s']:.2f}",
            f"{point['exhaustive_tokens_per_s']:.2f}",
            "–" if factor is None else f"{factor:.1f}",
        )
    console.print(figure)
    _files(found, console)


def phi(found: Found, console: Console) -> None:
    """Print the fit beside the observations, and beside independent acceptance."""
    title = f"φ: a = {found['a']:.3f}, p = {found['p']:.3f}, c = {found['c']:.4f}"
    table = make_table(title, "accepted", "observed", "φ", f"α = {found['alpha']:.3f}")
    total = sum(found["counts"])
    laws = zip(found["counts"], found["probabilities"], found["iid_probabilities"], strict=True)
    for accepted, (count, fitted, iid) in enumerate(laws):
        table.add_row(str(accepted), f"{count / total:.3f}", f"{fitted:.3f}", f"{iid:.3f}")
    table.add_row("in common", "", f"{found['goodness']:.3f}", f"{found['iid_goodness']:.3f}")
    console.print(table)


def load(found: Found, console: Console) -> None:
    """Print a line per strategy; utilisations are means over replicas and over drafters."""
    columns = ("p50 s", "p99 s", "TTFT s", "tokens/s", "drafted", "verified", "wasted")
    title = f"{found['num_requests']} requests, {found['num_verifiers']} replicas of the target"
    table = make_table(title, "strategy", *columns, "replicas", "drafter")
    for name, outcome in found["strategies"].items():
        latency = outcome["latency_s"]
        table.add_row(
            name,
            f"{latency['p50']:.3f}",
            f"{latency['p99']:.3f}",
            f"{outcome['first_token_s']['p50']:.3f}",
            f"{outcome['tokens_per_s']:.1f}",
            *(str(outcome[f"num_{kind}_tokens"]) for kind in ("drafted", "verified", "wasted")),
            _mean_share(outcome["verifier_utilisation"]),
            _mean_share(outcome["drafter_utilisation"]),
        )
    console.print(table)


def _mean_share(shares: Sequence[float]) -> str:
    return f"{fmean(shares):.0%}" if shares else "-"


def _files(found: Found, console: Console) -> None:
    for file in found["files"]:
        console.print(file)
