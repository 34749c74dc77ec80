"""How figures look: colours that colour-blind readers tell apart, fonts, saving, captions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workings.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito, "Color universal design" (2008), darkest first; yellow is left out on white paper.
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
)
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY, INK, PALE = "#8A8A8A", "#222222", "#E3E3E3"
FORMATS = ("png", "svg", "pdf")

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": PALE,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 3.0,
    "ytick.major.size": 0.0,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "lines.linewidth": 1.8,
    "svg.hashsalt": "workings",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


@contextmanager
def style() -> Iterator[None]:
    """The settings above, for everything drawn inside and for nothing else."""
    from matplotlib import rc_context

    with rc_context(RC):
        yield


def new_figure(*, width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure in inches with `columns` plots side by side; no window, no global state."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.06)
    figure = Figure(figsize=(width, height), layout=layout)
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def save_figure(
    figure: Figure, output: Path, *, caption: str, settings: Mapping[str, object]
) -> list[Path]:
    """The files written: the figure, and `NAME.caption.txt` with the caption and the settings.

    The suffix of `output` (.png, .svg, .pdf) picks the format; without one all three are written.
    """
    suffix = output.suffix.lstrip(".").lower()
    if suffix and suffix not in FORMATS:
        raise ConfigError(
            f"cannot draw {output}: unknown format {suffix!r}; expected one of "
            + ", ".join(f".{name}" for name in FORMATS)
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in (suffix,) if suffix else FORMATS:
        path = output if suffix else output.with_name(f"{output.name}.{name}")
        # No date inside, so that the same numbers give the same bytes.
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(name)
        figure.savefig(path, format=name, dpi=200, metadata=metadata)
        paths.append(path)
    stem = output.stem if suffix else output.name
    paths.append(output.with_name(f"{stem}.caption.txt"))
    lines = [caption, *(f"{name}: {value}" for name, value in settings.items())]
    paths[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths
