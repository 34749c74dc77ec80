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

LineStyle = str | tuple[int, tuple[float, ...]]

# Okabe and Ito, "Color universal design" (2008); yellow is left out on white paper.
BLUE, ORANGE, GREEN, SKY, VERMILLION, PURPLE = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#56B4E9",
    "#D55E00",
    "#CC79A7",
)
COLOURS = (BLUE, ORANGE, GREEN, SKY, VERMILLION, PURPLE)
"""In an order in which neighbours differ in lightness, so that they do in greyscale."""
LINES: tuple[LineStyle, ...] = (
    "-",
    (0, (5, 1.8)),
    (0, (7, 1.6, 1.4, 1.6)),
    (0, (1.4, 1.4)),
    (0, (3, 1.2, 1.2, 1.2, 1.2, 1.2)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "//", "..", "\\\\", "xx", "--")
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
    "hatch.linewidth": 0.7,
    "svg.hashsalt": "workings",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


def lightness(colour: str) -> float:
    """CIE L* of a colour "#RRGGBB" of sRGB, from 0 (black) to 100 (white): what greyscale keeps.

    >>> round(lightness("#FFFFFF")), round(lightness("#000000")), round(lightness("#777777"))
    (100, 0, 50)
    """
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    root = luminance ** (1 / 3) if luminance > (6 / 29) ** 3 else luminance * 841 / 108 + 4 / 29
    return 116 * root - 16


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
