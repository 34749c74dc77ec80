"""How often the 95 % intervals hold the truth, in simulation, and whether pass@k is unbiased.

    python benchmarks/intervals.py [--replicates 2000] [--record]

The grid is that of benchmarks and samples as they are used: means of 5 to 90 %, 30 to 5,000
problems, 1 to 32 samples a problem. The paired part evaluates two models on the same problems.
benchmarks/interval_simulation.py draws and counts.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from itertools import product

import numpy as np
from interval_simulation import (
    CHANGES,
    Coverage,
    averages,
    bootstrap_coverage,
    majorities,
    mean_coverage,
    paired_coverage,
    pass_bias,
    passes,
)
from measured import RESULTS, Row, document, write

from workings.seeds import derive_seed

FILE = RESULTS / "intervals.json"
MEANS = (0.05, 0.1, 0.3, 0.5, 0.9)
CONCENTRATIONS = (0.5, 2.0, 20.0)
"""a + b of Beta(a, b): problems that are nearly all solved or not; even spread; nearly alike."""
PROBLEMS = (30, 500, 5000)
SAMPLES = (1, 8, 32)
PAIRED_PROBLEMS = (30, 500)
PAIRED_MEANS = (0.05, 0.3, 0.5, 0.9)
PASS_AT = ((8, 2), (8, 8), (32, 8), (32, 32))
BOOTSTRAPPED_SAMPLES = (8, 32)
SMALL, EFFORT = 500, 5
"""Cells of up to SMALL problems get EFFORT times the replicates."""
NOTES = (
    "Shares of 95 % intervals that hold the mean of the population; in brackets the mean width in "
    "points. The rates of problems are Beta(a, b) with the mean a / (a + b) and the concentration "
    "a + b of the line.",
)


def grid_rows(replicates: int) -> list[Row]:
    """One row for every cell of the grid, and what the issue of the grid asks about all of them."""
    rows = []
    found: dict[str, list[Coverage]] = {}
    for n, mean, concentration, k in product(PROBLEMS, MEANS, CONCENTRATIONS, SAMPLES):
        one = mean_coverage(
            averages(k),
            mean,
            concentration,
            n=n,
            replicates=_replicates(replicates, n),
            seed=derive_seed(0, "grid", n, str(mean), str(concentration), k),
        )
        found.setdefault("the grid", []).append(one)
        found.setdefault(f"the grid at {n:,} problems", []).append(one)
        line = f"mean {mean:g}, concentration {concentration:g}"
        rows.append(one.row(f"avg@k of {n:,} problems: k = {k}, by {line}"))
    return [*_totals(found), *rows]


def other_values_rows(replicates: int) -> list[Row]:
    """The same at 30 problems for values that are no averages."""
    kinds = {
        "pass@2 of 8": passes(2)(8),
        "pass@8 of 32": passes(8)(32),
        "maj@8": majorities(8),
    }
    rows = []
    found: dict[str, list[Coverage]] = {}
    for mean, concentration in product(MEANS, CONCENTRATIONS):
        for kind, values in kinds.items():
            one = mean_coverage(
                values,
                mean,
                concentration,
                n=30,
                replicates=_replicates(replicates, 30),
                seed=derive_seed(0, "other", kind, str(mean), str(concentration)),
            )
            found.setdefault("pass@k and maj@k at 30 problems", []).append(one)
            line = f"mean {mean:g}, concentration {concentration:g}"
            rows.append(one.row(f"other values of 30 problems: {kind}, by {line}"))
    return [*_totals(found), *rows]


def paired_rows(replicates: int) -> list[Row]:
    """One row for every cell of paired differences."""
    rows = []
    found: dict[str, list[Coverage]] = {}
    cells = product(PAIRED_PROBLEMS, CHANGES, PAIRED_MEANS, (0.5, 20.0), SAMPLES)
    for n, change, mean, concentration, k in cells:
        one, plain = paired_coverage(
            change,
            mean,
            concentration,
            n=n,
            k=k,
            replicates=_replicates(replicates, n),
            seed=derive_seed(0, "paired", n, change, str(mean), str(concentration), k),
        )
        found.setdefault(f"paired differences at {n:,} problems", []).append(one)
        found.setdefault(f"the plain paired interval at {n:,} problems", []).append(plain)
        line = f"{change}; mean {mean:g}, concentration {concentration:g}"
        rows.append(one.row(f"differences of {n:,} problems: k = {k}, by {line}"))
    return [*_totals(found), *rows]


def bootstrap_rows(replicates: int) -> list[Row]:
    """What other methods cover at 30 problems and several samples."""
    found: dict[str, list[Coverage]] = {}
    for mean, concentration, k in product(MEANS, CONCENTRATIONS, BOOTSTRAPPED_SAMPLES):
        ours = derive_seed(0, "grid", 30, str(mean), str(concentration), k)
        both = bootstrap_coverage(
            averages(k), mean, concentration, n=30, replicates=replicates, seed=ours
        )
        for name, one in both.items():
            found.setdefault(f"the {name} bootstrap at 30 problems, k = 8 and 32", []).append(one)
    return _totals(found)


def pass_rows(replicates: int) -> list[Row]:
    """The bias of pass@k in standard errors, for every mean and concentration."""
    rows = []
    for n, k in PASS_AT:
        scores = []
        for mean, concentration in product(MEANS, CONCENTRATIONS):
            seed = derive_seed(0, "pass", n, k, str(mean), str(concentration))
            bias, error = pass_bias(n, k, mean, concentration, replicates=replicates, seed=seed)
            scores.append(bias / error)
        rows.append(
            {
                "name": f"pass@{k} of {n} samples: largest bias",
                "value": round(max(map(abs, scores)), 2),
                "unit": "standard errors",
                "n": replicates,
                "note": f"over {len(scores)} populations; mean of squares "
                f"{np.mean(np.square(scores)):.2f}, expected 1",
            }
        )
    return rows


def _totals(found: dict[str, list[Coverage]]) -> list[Row]:
    rows = []
    for name, cells in found.items():
        shares = [one.share for one in cells]
        rows.append(
            {
                "name": f"mean coverage of {name}",
                "value": round(100 * float(np.mean(shares)), 2),
                "unit": "%",
                "n": sum(one.replicates for one in cells),
                "note": f"{len(cells)} cells, from {100 * min(shares):.2f} to "
                f"{100 * max(shares):.2f} %",
            }
        )
        rows.append(
            {
                "name": f"lowest coverage of {name}",
                "value": round(100 * min(shares), 2),
                "unit": "%",
                "n": min(one.replicates for one in cells),
            }
        )
    return rows


def _replicates(replicates: int, n: int) -> int:
    return replicates * (EFFORT if n <= SMALL else 1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--replicates", type=int, default=2000)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args(arguments)
    rows = [
        *grid_rows(given.replicates),
        *other_values_rows(given.replicates),
        *paired_rows(given.replicates),
        *bootstrap_rows(given.replicates),
        *pass_rows(100 * given.replicates),
    ]
    for row in rows:
        note = f"  ({row['note']})" if "note" in row else ""
        print(f"{row['name']}: {row['value']} {row['unit']}{note}")
    if given.record:
        FILE.unlink(missing_ok=True)
        command = shlex.join(["python", "benchmarks/intervals.py", *sys.argv[1:]])
        write(FILE, document("intervals", rows, command=command, packages=["numpy"], notes=NOTES))


if __name__ == "__main__":
    main()
