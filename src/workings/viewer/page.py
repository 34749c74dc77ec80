"""The page itself, as Streamlit runs it: what is chosen in, what the other files make of it out.

    streamlit run page.py -- FOLDER [TOKENIZER]

Curves and benchmarks are here, the pages of responses in `responses`, and the widgets in `widgets`.
Nothing is decided in these three files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from workings.errors import ConfigError, NotFound, WorkingsError
from workings.viewer import benchmarks, curves, markup
from workings.viewer.discovery import Found, discover
from workings.viewer.files import inside
from workings.viewer.responses import responses, side_by_side
from workings.viewer.rich_text import to_markdown
from workings.viewer.state import VIEWS, ViewState, query_of
from workings.viewer.widgets import (
    choose,
    fill,
    keep_options,
    read_address,
    set_value,
    show_error,
    st,
    state_now,
    write_address,
)

TITLES = {
    "curves": "Curves",
    "benchmarks": "Benchmarks",
    "responses": "Responses",
    "compare": "Side by side",
}


def main(root: Path, tokenizer: Path | None) -> None:
    """Show the page."""
    st.set_page_config(
        page_title=f"{root.name} · Workings",
        page_icon="📈",
        layout="wide",
        initial_sidebar_state=340,
    )
    st.html(markup.STYLE)
    try:
        read_address()
    except WorkingsError as error:
        show_error(error)
        return
    found = _discover(str(root))
    left, right = st.columns([3, 5], vertical_alignment="center")
    left.markdown(f"#### {to_markdown(root.name, markdown=False, latex=False)}")
    with right:
        choose("view", "Page", VIEWS, TITLES.__getitem__)
    sections: dict[str, Callable[[], None]] = {
        "curves": lambda: _curves(root, found),
        "benchmarks": lambda: _benchmarks(root, found),
        "responses": lambda: responses(root, found, tokenizer),
        "compare": lambda: side_by_side(root, found, tokenizer),
    }
    try:
        sections[state_now().view]()
    except WorkingsError as error:
        show_error(error)
        if query_of(state_now()).keys() - {"view"}:
            st.button("Begin anew", on_click=fill, args=(ViewState(view=state_now().view),))
    write_address()


@st.cache_data(ttl=5, show_spinner="Looking for runs")
def _discover(root: str) -> Found:
    return discover(Path(root))


# ------------------------------------------------------------------------------------- curves


def _curves(root: Path, found: Found) -> None:
    if not found.runs:
        raise NotFound("no run below this folder has metrics", hint="a run writes metrics.jsonl")
    labels = {run.name: run.label for run in found.runs}
    for name in state_now().runs:
        inside(root, name)
        if name not in labels:
            raise NotFound(f"there is no run {name!r} in this folder")
    with st.sidebar:
        if not state_now().runs:
            set_value("runs", curves.first_runs(root, [run.name for run in found.runs]))
        st.multiselect("Runs", list(labels), format_func=labels.__getitem__, key="runs")
        files = {labels[name]: curves.metrics_file(inside(root, name)) for name in state_now().runs}
        lines, problems = curves.read_lines(files)
        known = curves.recorded_metrics([files[label] for label in lines])
        usual = curves.usual_metrics(known)
        keep_options("metrics", known)
        st.multiselect("Metrics", known, key="metrics", placeholder="The usual ones")
        st.slider("Smoothing, steps", 1, 101, step=2, key="smoothing")
    state = state_now()
    if not state.runs:
        st.html(markup.note("Choose a run on the left."))
        return
    colours = curves.colours_of([labels[name] for name in state.runs])
    st.html(markup.legend(colours))
    _warnings(problems)
    early = curves.without_curves(lines)
    if early:
        why = "nothing was recorded at two steps"
        st.html(markup.note(f"No curve yet of {', '.join(early)}: {why}."))
    for place, metric in enumerate(state.metrics or usual):
        if place % 2 == 0:  # a row of two, so that a narrow page keeps the order
            columns = st.columns(2, gap="large")
        having = {label: line[metric] for label, line in lines.items() if metric in line}
        with columns[place % 2]:
            spec = curves.chart(having, metric, colours=colours, smoothing=state.smoothing)
            st.vega_lite_chart(spec=spec, width="stretch", key=f"chart {metric}")
            for label, curve in having.items():
                if curve.num_not_finite:
                    said = curves.not_drawn(label, curve.num_not_finite)
                    st.html(markup.note(said))
    _settings_of_runs({labels[name]: inside(root, name) for name in state.runs})


def _settings_of_runs(folders: dict[str, Path]) -> None:
    try:
        rows = curves.differing_settings(folders) if len(folders) > 1 else []
    except ConfigError as error:
        _warnings([error.message])
        return
    if rows:
        with st.expander(f"Settings in which the runs differ ({len(rows)})"):
            cells = [[markup.text_cell(text) for text in (name, *row)] for name, row in rows]
            st.html(markup.table(["Setting", *folders], cells))


def _warnings(problems: Sequence[str]) -> None:
    for problem in problems:
        st.warning(to_markdown(problem, markdown=False, latex=False))


# --------------------------------------------------------------------------------- benchmarks


def _benchmarks(root: Path, found: Found) -> None:
    lines, problems = benchmarks.read_lines(root, found)
    if not lines:
        hint = "workings eval writes them"
        if found.responses:
            hint += "; the page Responses shows what is here without one"
        raise NotFound("no summary.json of an evaluation below this folder", hint=hint)
    st.html(benchmarks.lines_table(lines))
    st.html(
        markup.note(
            f"{len(lines):,} evaluations by run, the newest first. Accuracy: format and answer "
            "right, with its 95 % interval over problems. Lenient: the answer alone, where it was "
            "graded outside of the format."
        )
    )
    _warnings(problems)
    sets = benchmarks.evaluations(found)
    st.markdown("##### Paired differences")
    if len(sets) < 2:
        st.html(markup.note("Two evaluations of the same problems can be compared."))
        return
    names = list(sets)
    if not state_now().reference:
        together = benchmarks.first_compared(lines, sets)
        set_value("reference", together[-1] if together else names[-1])
        set_value("against", together[:-1])
    for name in (state_now().reference, *state_now().against):
        if name not in sets:
            raise NotFound(f"there is no evaluation {name!r} in this folder")
    left, right = st.columns([2, 3])
    left.selectbox("Reference", names, key="reference")
    right.multiselect("Compared with it", names, key="against")
    state = state_now()
    others = [name for name in state.against if name != state.reference]
    if not others:
        st.html(markup.note("Choose what to compare with the reference."))
        return
    with st.spinner("Comparing"):
        comparisons, remarks = benchmarks.compare(root, sets, state.reference, others)
    st.html(benchmarks.comparisons_table(comparisons))
    st.html(
        markup.note(
            "Paired over the same problems, in points, with 95 % intervals. Better and worse count "
            "problems. p is corrected for the number of comparisons (Holm)."
        )
    )
    _warnings(remarks)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
