"""Heat maps whose cells say their number, and the largest batch by setting and length.

Light and dark carry the same meaning as colour, so a map reads the same in greyscale.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workings.errors import DataError
from workings.evaluation.plot_style import GREY, INK, new_figure, save_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGEST = "largest.jsonl"
"""The file of a memory profile with a row per setting and length."""
_DARK_FROM = 0.55
_NEEDED = ("sequence_length", "max_batch_size")
_SETTINGS = ("gradient_checkpointing", "activation_checkpointing", "flash_attention", "attention")
_BARE = ("none", "full", "auto")
"""Values that say nothing without the name of the setting."""


def read_largest(file: Path) -> list[dict[str, Any]]:
    """The rows of a memory profile's JSONL; DataError where a line is none."""
    rows = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{file} line {number} is not JSON ({error})") from error
        if not isinstance(row, dict) or any(name not in row for name in _NEEDED):
            raise DataError(
                f"{file} line {number} is no row of a memory profile: it needs "
                f"{' and '.join(_NEEDED)}",
                hint="workings profile memory writes such a file",
            )
        rows.append(row)
    if not rows:
        raise DataError(f"{file} holds no rows")
    return rows


@style()
def plot_memory(
    rows: Sequence[Mapping[str, Any]], output: Path, *, title: str | None = None
) -> list[Path]:
    """The files written: a map of settings against length, each cell the largest batch that fits.

    Of several rows for one cell the last one counts. A cross is "not even one row".
    """
    cells = {(setting_label(row), int(row["sequence_length"])): row for row in rows}
    settings = list(dict.fromkeys(label for label, _ in cells))
    lengths = sorted({length for _, length in cells})
    most = max(1, *(int(row["max_batch_size"]) for row in cells.values()))
    figure, (axes,) = new_figure(width=4.6 + 0.95 * len(lengths), height=1.8 + 0.4 * len(settings))
    for (label, length), row in cells.items():
        size = int(row["max_batch_size"])
        heat_cell(
            axes,
            lengths.index(length),
            settings.index(label),
            shade=size / most if size else None,
            text=str(size) if size else "",
            crossed=not size,
        )
    finish_heat_map(axes, [f"{length:,}" for length in lengths], settings)
    axes.set_xlabel("Tokens in a row")
    models = dict.fromkeys(str(row.get("model_short_name") or "") for row in rows)
    axes.set_title(title or ": ".join(filter(None, (", ".join(models), "rows that fit"))))
    caption = "Rows in the largest microbatch that fits. Darker is more; a cross is none."
    common: dict[str, object] = {}
    for name in ("model_name", "dtype", "device", "vocab_size"):
        found = dict.fromkeys(str(row[name]) for row in rows if row.get(name) is not None)
        if found:
            common[name] = ", ".join(found)
    peaks = [row["peak_memory_gb"] for row in rows if row.get("peak_memory_gb")]
    if peaks:
        common["peak memory"] = f"{min(peaks):.2f} to {max(peaks):.2f} GiB"
    return save_figure(figure, output, caption=caption, settings=common)


def setting_label(row: Mapping[str, Any]) -> str:
    """What was set for a row, in a few words; true and false become "with" and "without".

    >>> setting_label({"optimizer": "adamw", "gradient_checkpointing": True, "attention": "sdpa"})
    'adamw, gradient checkpointing, sdpa'
    >>> setting_label({"activation_checkpointing": "none", "attention": "auto"})
    'activation checkpointing none, attention auto'
    """
    parts = [str(row.get("optimizer") or "")]
    for name in _SETTINGS:
        value = row.get(name)
        words = name.replace("_", " ")
        if isinstance(value, bool):
            parts.append(words if value else f"no {words}")
        elif value is not None:
            parts.append(f"{words} {value}" if str(value) in _BARE else str(value))
    return ", ".join(part for part in parts if part) or "default"


def heat_cell(axes: Axes, x: int, y: int, *, shade: float | None, text: str, crossed: bool) -> None:
    """Draw a cell: darker for a larger `shade` in [0, 1], white for None, crossed out or not."""
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    colour = "white" if shade is None else colormaps["Blues"](0.08 + 0.85 * shade)
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white"))
    if crossed:
        axes.plot(x, y, marker="x", color=GREY, markersize=6, linestyle="none")
    ink = "white" if shade is not None and shade > _DARK_FROM else INK
    axes.text(x, y, text, ha="center", va="center", color=ink, fontsize=9)


def finish_heat_map(axes: Axes, columns: Sequence[str], rows: Sequence[str]) -> None:
    """Give the map its two axes: `columns` from left to right, `rows` from bottom to top."""
    axes.grid(visible=False)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
