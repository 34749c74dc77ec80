"""The pages on which responses are read: one by one, as groups, and side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from workings.errors import DataError, NotFound
from workings.evaluation.reports import RESULTS_FILE, SUMMARY_FILE, read_summary
from workings.types import Verdict
from workings.viewer import markup, samples
from workings.viewer.discovery import Found, FoundFile, newest_together
from workings.viewer.facets import CLASSES, Choices, choices_of, read_facets
from workings.viewer.files import inside
from workings.viewer.filters import MOST_ROWS, Page, page_of, select
from workings.viewer.parquet_rows import Row
from workings.viewer.rich_text import answer_markdown, plain_html, to_markdown
from workings.viewer.rows import RowFile, open_rows, read_rows
from workings.viewer.state import COLOURINGS, OUTCOMES, TRUNCATED
from workings.viewer.thinking import split_thinking
from workings.viewer.tokens import find_tokenizer, tokens_html
from workings.viewer.widgets import (
    choose,
    first_page,
    open_view,
    set_value,
    several,
    st,
    state_now,
)

COLOUR_TITLES = {
    "none": "Text",
    "logprob": "Log-probability",
    "advantage": "Advantage",
    "mask": "Loss mask",
}
COLOUR_NOTES = {
    "logprob": "Stronger orange: less likely when it was sampled.",
    "advantage": "Blue: made more likely. Red: made less likely. Pale: not trained.",
    "mask": "Blue: in the loss. Purple: off-policy. Pale: left out.",
}
OUTCOME_TITLES = {
    "all": "All problems",
    "first": "Left does better",
    "second": "Right does better",
    "differ": "They differ",
}
LONG_PROMPT = 700
"""A prompt of more characters is folded."""
MOST_SAMPLES = 8
"""Samples of a problem that stand side by side."""


def responses(root: Path, found: Found, tokenizer: Path | None) -> None:
    with st.sidebar:
        file = _choose_file(root, found, "file", "Responses of")
        state = state_now()
        if not state.problem:
            _filters(root, file)
        _text_switches()
    state = state_now()
    pieces = find_tokenizer(root, state.file, tokenizer) if state.colour != "none" else None
    one = found.response_file(state.file)
    label = "" if one is None else one.label
    if state.problem:
        _group(file, label, pieces)
        return
    with st.spinner("Reading"):
        chosen = select(file, state.filters)
    page = page_of(chosen, state.page, state.rows)
    _pages(page, file, label)
    rows = read_rows(file, page.rows, tokens=state.colour != "none")
    for number, row in zip(page.rows, rows, strict=True):
        _card(file, row, number, pieces)
    if page.count > 1:
        _pages(page, file)


def side_by_side(root: Path, found: Found, tokenizer: Path | None) -> None:
    with st.sidebar:
        first = _choose_file(root, found, "file", "Left")
        second = _choose_file(root, found, "other", "Right")
        choose("outcome", "Problems", OUTCOMES, OUTCOME_TITLES.__getitem__)
        _text_switches()
    state = state_now()
    with st.spinner("Reading"):
        shared = samples.shared_problems(first, second, outcome=state.outcome)
    if not shared:
        if state.outcome == "all":
            raise NotFound(
                "these two have no problem in common", hint="choose evaluations of one data set"
            )
        raise NotFound(
            "none of the problems that these two have in common is such a one",
            hint="choose all problems",
        )
    names = [one.problem for one in shared]
    if state.problem and state.problem not in names:
        st.button("First problem", on_click=open_view, kwargs={"problem": ""})
        raise NotFound(f"{state.problem!r} is not among the {len(names)} problems shown")
    place = names.index(state.problem) if state.problem else 0
    st.markdown(f"##### {to_markdown(names[place], markdown=False, latex=False)}")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.note(f"{place + 1:,} of {len(names):,} problems"))
        for step, sign, title in ((-1, "‹", "Back"), (1, "›", "Forth")):
            target = names[min(max(place + step, 0), len(names) - 1)]
            st.button(sign, key=f"step {step}", disabled=target == names[place], help=title,
                      on_click=open_view, kwargs={"problem": target})  # fmt: skip
    numbers = read_facets(first).rows_of(names[place])
    _prompt(read_rows(first, numbers[:1])[0])
    for column, file, name in zip(
        st.columns(2, gap="medium"), (first, second), (state.file, state.other), strict=True
    ):
        pieces = find_tokenizer(root, name, tokenizer) if state.colour != "none" else None
        with column:
            numbers = read_facets(file).rows_of(names[place])
            rows = read_rows(file, numbers[:MOST_SAMPLES], tokens=state.colour != "none")
            one = found.response_file(name)
            st.html(markup.head("" if one is None else one.label, []))
            st.html(markup.note(samples.summary_of(rows)))
            if len(numbers) > len(rows):
                st.html(markup.note(f"The first {len(rows)} of {len(numbers)} samples."))
            for number, row in zip(numbers, rows, strict=False):
                _card(file, row, number, pieces, alone=False)


def _group(file: RowFile, label: str, pieces: Any) -> None:
    """All samples of one problem."""
    state = state_now()
    with st.container(horizontal=True, vertical_alignment="center"):
        problem = to_markdown(state.problem, markdown=False, latex=False)
        st.markdown(f"##### {problem}", width="stretch")
        st.button("All problems", on_click=open_view, kwargs={"problem": ""})
    st.html(markup.note(label))
    numbers = read_facets(file).rows_of(state.problem)
    if not numbers:
        raise NotFound(f"no response to a problem {state.problem!r} in {state.file}")
    rows = read_rows(file, numbers[:MOST_ROWS], tokens=state.colour != "none")
    _prompt(rows[0])
    st.markdown(f"**Gold** {answer_markdown(rows[0]['answer'])}")
    st.html(markup.note(samples.summary_of(rows)))
    st.html(samples.samples_table(rows))
    if len(numbers) > len(rows):
        st.html(markup.note(f"The first {len(rows)} of {len(numbers)} samples."))
    for number, row in zip(numbers, rows, strict=False):
        _card(file, row, number, pieces, alone=False)


def _filters(root: Path, file: RowFile) -> None:
    choices = _choices(root, file)
    more: dict[str, Any] = {}
    if not choices.complete:
        more = {"accept_new_options": True, "help": "Of some rows; type others."}
    st.text_input(
        "Search", key="text", placeholder="In prompt, response and gold", on_change=first_page
    )
    if len(choices.sources) > 1 or state_now().sources:
        several("sources", "Source", choices.sources, **more)
    verdicts = [verdict.value for verdict in Verdict]
    left, right = st.columns(2)
    with left:
        several("verdicts", "Verdict", verdicts)
        several("subjects", "Subject", choices.subjects, **more)
    with right:
        note = "Format and answer: 1 is right, 0 wrong."
        if choices.kinds != CLASSES:
            note = "The file says only whether the answer is right."
        several("kinds", "Class", choices.kinds, help=note, format_func=samples.kind_shown)
        several("levels", "Level", choices.levels, **more)
    low, high = st.columns(2)
    limits: dict[str, Any] = {
        "min_value": 0,
        "step": 1,
        "placeholder": "Any",
        "on_change": first_page,
    }
    low.number_input("Tokens from", key="min_length", **limits)
    high.number_input("to", key="max_length", **limits)
    choose("truncated", "Truncated", TRUNCATED, str.capitalize, on_change=first_page)
    st.slider("Rows a page", 1, MOST_ROWS, key="rows", on_change=first_page)


def _choices(root: Path, file: RowFile) -> Choices:
    """What there is to choose from; subjects and levels by the summary beside the rows, if any."""
    choices = choices_of(file)
    summary = file.path.with_name(SUMMARY_FILE)
    if (
        not choices.complete
        and file.path.name == RESULTS_FILE
        and summary.is_file()
        and summary.resolve().is_relative_to(root.resolve())
    ):
        try:
            read = read_summary(summary)
            subjects, levels = list(read["subject_breakdown"]), list(read["level_breakdown"])
            return replace(choices, subjects=subjects, levels=levels, complete=True)
        except (DataError, KeyError, TypeError):
            pass  # the benchmarks' page says what is wrong with it
    return choices


def _text_switches() -> None:
    st.divider()
    left, right = st.columns(2)
    left.toggle("LaTeX", key="latex")
    right.toggle("Markdown", key="markdown")
    st.toggle("Thinking unfolded", key="unfolded")
    choose("colour", "Tokens coloured by", COLOURINGS, COLOUR_TITLES.__getitem__)
    note = COLOUR_NOTES.get(state_now().colour)
    if note:
        st.html(markup.note(note))


def _pages(page: Page, file: RowFile, label: str = "") -> None:
    """What is shown, and the way to other pages; with a label above the rows, without one below."""
    name = "above" if label else "below"
    first = (page.rows[0], page.rows[-1]) if page.rows else None
    shown = f"{page.total:,} of {file.num_rows:,} responses"
    if page.total == file.num_rows:
        shown = f"{file.num_rows:,} responses"
        if first is not None and page.count > 1:
            shown += f", {first[0] + 1:,} to {first[1] + 1:,}"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html((markup.file_name(label) if label else "") + markup.note(shown))
        steps = st.container(horizontal=True, vertical_alignment="center", width="content")
    with steps:
        st.button("‹", key=f"back {name}", disabled=page.number == 1, on_click=set_value,
                  help="Back", args=("page", page.number - 1))  # fmt: skip
        st.html(markup.note(f"Page {page.number:,} of {page.count:,}"), width="content")
        st.button("›", key=f"forth {name}", disabled=page.number == page.count,
                  on_click=set_value, help="Forth", args=("page", page.number + 1))  # fmt: skip


def _card(file: RowFile, row: Row, number: int, pieces: Any, *, alone: bool = True) -> None:
    """One response: what is known of it, prompt, folded thinking, answer, gold."""
    state = state_now()
    title = row["problem_id"] if row["problem_id"] is not None else f"row {number}"
    if row["sample"] is not None:
        sample = f"sample {row['sample']}"
        title = f"{title} · {sample}" if alone else sample
    several_sources = len(choices_of(file).sources) > 1
    with st.container(border=True, gap="small"):
        st.html(markup.head(title, samples.badges_of(row, source=several_sources)))
        if alone:
            _prompt(row)
        if state.colour == "none":
            _response(row)
        else:
            try:
                st.html(tokens_html(row, pieces, colour=state.colour))
            except DataError as error:
                st.html(markup.note(error.message))
                _response(row)
        gold, read, group = st.columns([3, 3, 2], vertical_alignment="center")
        gold.markdown(f"**Gold** {answer_markdown(row['answer'])}")
        if row["verdict"] or row["extracted"]:
            read.markdown(f"**Answer read** {answer_markdown(row['extracted'])}")
        if alone and row["problem_id"] is not None:
            group.button("All samples", key=f"group {number}", on_click=open_view,
                         kwargs={"problem": row["problem_id"]}, type="tertiary")  # fmt: skip


def _prompt(row: Row) -> None:
    text = row["question"] or row["prompt"] or ""
    if len(text) > LONG_PROMPT:
        with st.expander(f"Prompt, {len(text):,} characters"):
            _text(text)
    else:
        st.html(markup.label("Prompt"))
        _text(text)


def _response(row: Row) -> None:
    parts = split_thinking(row["completion"], row["prompt"] or "")
    if parts.thought is not None:
        words = f"{len(parts.thought.split()):,} words"
        ending = "" if parts.finished else ", not finished"
        with st.expander(f"Thinking, {words}{ending}", expanded=state_now().unfolded):
            _text(parts.thought)
    if parts.thought is None or parts.answer.strip():
        st.html(markup.label("Response"))
        _text(parts.answer)


def _text(text: str) -> None:
    """Text of a model, escaped; rendered as far as the switches say."""
    state = state_now()
    if state.latex or state.markdown:
        shown = to_markdown(text.strip("\n"), markdown=state.markdown, latex=state.latex)
        st.markdown(shown)
    else:
        st.html(plain_html(text))


def _choose_file(root: Path, found: Found, key: str, title: str) -> RowFile:
    """A file of responses, chosen; the newest where none is."""
    if not found.responses:
        raise NotFound("no responses below this folder", hint="workings eval writes them")
    name = getattr(state_now(), key)
    if name:
        inside(root, name)
        if found.response_file(name) is None:
            raise NotFound(f"{name!r} is no file of responses in this folder")
    else:
        set_value(key, _first_file(found, key).name)
    labels = {one.name: one.label for one in found.responses}
    shown = labels.__getitem__
    st.selectbox(title, list(labels), format_func=shown, key=key, on_change=_other_file)
    return open_rows(inside(root, getattr(state_now(), key)))


def _first_file(found: Found, key: str) -> FoundFile:
    """Where none is chosen: the newest, side by side the newest two of one data set."""
    if key == "other":
        left = found.response_file(state_now().file)
        others = [one for one in found.responses if one != left] or list(found.responses)
        return next((one for one in others if left and one.dataset == left.dataset), others[0])
    return (
        newest_together(found.responses, 2)[-1]
        if state_now().view == "compare"
        else found.responses[0]
    )


def _other_file() -> None:
    open_view(page=1, problem="")
