"""The experiments of the branch prediction paper: its figures and tables, and its φ."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from specmesh.cli.output_files import check_writable, writing
from specmesh.decoding.predict.closed_forms import alpha_of_rounds
from specmesh.decoding.predict.phi import Phi
from specmesh.tools.kit.options import Json
from specmesh.tools.kit.progress import tracked
from specmesh.tools.simulate import report
from specmesh.tools.simulate.options import CORES, Out, Seed, Tokens, Workers, accepted_counts
from specmesh.tools.simulate.output import show
from specmesh.tools.simulate.papers import branch_figures, branch_tables
from specmesh.tools.simulate.parallel import spread


def branches(
    tokens: Tokens = 1000,
    seed: Seed = 0,
    out: Out = None,
    workers: Workers = CORES,
    json_: Json = False,
) -> None:
    """Repeat branch prediction's Figures 5-7 and 12, and its Tables 3 and 4."""
    names = ("figures.png", "figures.csv", "tables.csv")
    files = [] if out is None else [out / f"branch-{name}" for name in names]
    for file in files:
        check_writable(file, "--out")
    curve = partial(branch_figures.points_of, num_tokens=tokens, seed=seed)
    curves = tracked(
        spread(curve, branch_figures.ALPHAS, workers), len(branch_figures.ALPHAS), "curves"
    )
    points = [point for each in curves for point in each]
    explain = partial(branch_tables.explain, num_tokens=tokens, seed=seed)
    explained = [explain(row) for row in branch_tables.ROWS]
    pair = next(each for each in explained if each.published.is_figures_pair)
    exhaustive = list(branch_figures.exhaustive_points(pair.alpha, tokens, seed))
    found = {
        "num_tokens": tokens,
        "seed": seed,
        "least_n": branch_figures.least_n(),
        "figures_5_to_7": [asdict(point) for point in points],
        "largest_difference": branch_figures.largest_difference(points),
        "figure_12": {
            "alpha": pair.alpha,
            "points": [
                {**asdict(each), "compute_factor": each.compute_factor} for each in exhaustive
            ],
        },
        "tables_3_and_4": [each.as_dict() for each in explained],
        "shapes": branch_tables.shapes(explained),
    }
    show({**found, "files": list(map(str, files))}, json_, report.branches)
    if files:
        from specmesh.tools.simulate.papers import plots

        with writing():
            plots.throughput_curves(points, branch_figures.least_n(), files[0])
            plots.write_csv([asdict(point) for point in points], files[1])
            plots.write_csv([each.as_dict() for each in explained], files[2])


def phi(
    counts: Annotated[
        str,
        typer.Argument(
            help="Number of rounds in which 0, 1, ... n draft tokens were accepted: 60,20,12,8,55"
        ),
    ],
    json_: Json = False,
) -> None:
    """Fit branch prediction's φ (Eq. 12) to observed runs ('specmesh bench strategies')."""
    observed = accepted_counts(counts)
    fitted = Phi.fit(observed)
    alpha = alpha_of_rounds(observed)
    found = {
        "counts": observed,
        **asdict(fitted),
        "goodness": fitted.goodness(observed),
        "probabilities": fitted.probabilities(len(observed) - 1).tolist(),
        "alpha": alpha,
        "iid_probabilities": Phi.iid(alpha).probabilities(len(observed) - 1).tolist(),
        "iid_goodness": Phi.iid(alpha).goodness(observed),
    }
    show(found, json_, report.phi)
