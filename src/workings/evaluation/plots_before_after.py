"""Before and after training: two bars for each run and data set, and their paired difference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workings.errors import DataError
from workings.evaluation.compare import compare_by_problem, read_answers, refuse_other_problems
from workings.evaluation.metrics import Estimate, PairedDifference, estimate
from workings.evaluation.plot_style import INK, new_figure, save_figure, style
from workings.evaluation.plots_bars import bars_width, draw_bar_groups, intervals_note, legend_below
from workings.evaluation.reports import RESULTS_FILE
from workings.evaluation.stored_evaluations import STEP_FOLDER

BEFORE, AFTER = "step 0", "final"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeAfter:
    """Two evaluations of one run on the same problems.

    Attributes:
        before, after: accuracies at the first and at the last step that was evaluated.
        difference: after - before, paired by problem.
        first_step, last_step: those steps.
    """

    before: Estimate
    after: Estimate
    difference: PairedDifference
    first_step: int
    last_step: int


def read_before_after(run: Path) -> dict[str, BeforeAfter]:
    """{data set: its first and last evaluation} of a training run.

    DataError where the run kept no two evaluations of one data set.
    """
    steps = sorted((run / "eval").glob("step_*"))
    by_set: dict[str, dict[int, Path]] = {}
    for folder in steps:
        step = STEP_FOLDER.fullmatch(folder.name)
        if step is None:
            continue
        for file in sorted(folder.glob(f"*/{RESULTS_FILE}")):
            by_set.setdefault(file.parent.name, {})[int(step[1])] = file
    found = {}
    for name, files in by_set.items():
        first, last = min(files), max(files)
        if first == last:
            continue
        answers = [read_answers(files[step]) for step in (first, last)]
        names = (f"step {first}", f"step {last}")
        refuse_other_problems(answers[0], answers[1], names=names)
        shares = [one.shares for one in answers]
        samples = [max(map(len, one.marks.values())) for one in answers]
        found[name] = BeforeAfter(
            before=estimate(list(shares[0].values()), num_samples=samples[0]),
            after=estimate(list(shares[1].values()), num_samples=samples[1]),
            difference=compare_by_problem(shares[0], shares[1], names=names),
            first_step=first,
            last_step=last,
        )
    if not found:
        raise DataError(
            f"{run} holds no two evaluations to compare",
            hint="evaluation.at_start and evaluation.at_end store one each",
        )
    return found


@style()
def plot_before_after(
    found: Mapping[str, BeforeAfter],
    output: Path,
    *,
    title: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> list[Path]:
    """The files written: for each label two bars with intervals, the difference above them.

    The difference is paired by problem, so its interval may leave out zero where the bars' own
    intervals overlap.
    """
    values = {
        BEFORE: {label: one.before for label, one in found.items()},
        AFTER: {label: one.after for label, one in found.items()},
    }
    figure, (axes,) = new_figure(width=max(bars_width(values), 1.9 * len(found)), height=4.2)
    draw_bar_groups(axes, values)
    for place, one in enumerate(found.values()):
        gap = one.difference
        text = f"{100 * gap.difference:+.1f}\n[{100 * gap.low:+.1f}, {100 * gap.high:+.1f}]"
        top = 100 * max(one.before.high, one.after.high)
        axes.annotate(
            text,
            (place, top),
            xytext=(0, 5),
            textcoords="offset points",
            ha="center",
            va="bottom",
            color=INK,
            fontsize=9,
        )
    highest = max(100 * max(one.before.high, one.after.high) for one in found.values())
    top = 20 * math.ceil(highest / 20)
    axes.set_ylim(0, 1.2 * top)  # room for the differences above the bars
    axes.set_yticks(range(0, top + 1, 20 if top > 40 else 10))
    if len(found) == 1:
        axes.set_xlim(-1, 1)
    legend_below(axes, columns=2, drop=-0.14)
    if title:
        axes.set_title(title)
    steps = "; ".join(
        f"{label}: steps {one.first_step} and {one.last_step}" for label, one in found.items()
    )
    caption = (
        f"Accuracy before and after training ({steps}). {intervals_note(values)} Above the bars: "
        "the difference in points with its 95 % interval, paired by problem."
    )
    return save_figure(figure, output, caption=caption, settings=settings or {})
