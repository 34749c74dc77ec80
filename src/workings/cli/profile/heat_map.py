"""Heat maps of memory: batch size by length, and the largest batch by setting and length.

Every cell says its number, and light and dark carry the same meaning as colour, so the figures read
the same in greyscale and for every reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workings.cli.profile.memory_files import short_label
from workings.cli.profile.memory_search import Found
from workings.cli.profile.trial import Trial
from workings.evaluation.plot_style import new_figure, save_figure, style
from workings.evaluation.plots_memory import finish_heat_map, heat_cell


def draw_batch_by_length(
    found: Found, lengths: Sequence[int], output: Path, *, title: str
) -> list[Path]:
    """The files of a map of batch size against length: peak memory where it was measured.

    A size below one that fits does too ("fits"); one above what does not fit is crossed out.
    """
    sizes = sorted({trial.num_rows for trial in found.trials})
    measured = {(trial.num_rows, trial.length): trial for trial in found.trials}
    peaks = [trial.peak_bytes / 2**30 for trial in found.trials if trial.fits]
    top = max(peaks, default=1.0)
    with style():
        figure, [axes] = new_figure(width=2.2 + 0.95 * len(lengths), height=1.8 + 0.34 * len(sizes))
        for y, size in enumerate(sizes):
            for x, length in enumerate(lengths):
                trial = measured.get((size, length))
                fits = _fits(found, size, length)
                shade = trial.peak_bytes / 2**30 / top if trial is not None and fits else None
                heat_cell(axes, x, y, shade=shade, text=_text(trial, fits=fits), crossed=not fits)
        finish_heat_map(axes, [f"{length:,}" for length in lengths], [str(size) for size in sizes])
        axes.set_xlabel("tokens in a row")
        axes.set_ylabel("rows in a microbatch")
        axes.set_title(title)
        caption = (
            "Peak memory in GiB of real optimizer steps, darker for more; fits: a larger batch of "
            "this length does; a cross: it does not."
        )
        return save_figure(figure, output, caption=caption, settings=_settings(found))


def draw_batch_by_setting(
    founds: Sequence[Found], lengths: Sequence[int], output: Path, *, title: str
) -> list[Path]:
    """The files of a map of settings against length: rows in the largest microbatch."""
    largest = {
        (y, x): found.largest(length)
        for y, found in enumerate(founds)
        for x, length in enumerate(lengths)
    }
    most = max((trial.num_rows for trial in largest.values() if trial is not None), default=1)
    with style():
        figure, [axes] = new_figure(
            width=3.6 + 0.95 * len(lengths), height=1.8 + 0.34 * len(founds)
        )
        for (y, x), trial in largest.items():
            shade = None if trial is None else trial.num_rows / most
            text = "" if trial is None else str(trial.num_rows)
            heat_cell(axes, x, y, shade=shade, text=text, crossed=trial is None)
        finish_heat_map(
            axes, [f"{length:,}" for length in lengths], [short_label(f) for f in founds]
        )
        axes.set_xlabel("tokens in a row")
        axes.set_title(title)
        caption = "Rows in the largest microbatch that fits. Darker is more; a cross is none."
        return save_figure(figure, output, caption=caption, settings=_settings(founds[0]))


def _fits(found: Found, size: int, length: int) -> bool:
    best = found.largest(length)
    return best is not None and size <= best.num_rows


def _text(trial: Trial | None, *, fits: bool) -> str:
    if not fits:
        return ""
    return "fits" if trial is None else f"{trial.peak_bytes / 2**30:.2f}"


def _settings(found: Found) -> dict[str, object]:
    run = found.variant.run
    return {
        "run": f"{run.kind} {run.name}",
        "model": run.model.name_or_path,
        "device": found.report.get("device", "unknown"),
        "dtype": run.model.dtype,
        "held before a step": f"{found.report.get('held_bytes', 0) / 2**30:.2f} GiB",
    }
