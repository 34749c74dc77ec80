"""Streamlit, and the widgets that hold the state of the page; no other file imports it.

Streamlit runs the page from top to bottom at every click. What its widgets hold is one `ViewState`,
which is read from the address at first and written to it at last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import streamlit as st

from workings.errors import WorkingsError
from workings.viewer import markup
from workings.viewer.rich_text import to_markdown
from workings.viewer.state import ViewState, parse_query, query_of

__all__ = [
    "choose",
    "fill",
    "first_page",
    "keep_options",
    "open_view",
    "read_address",
    "set_value",
    "several",
    "show_error",
    "st",
    "state_now",
    "write_address",
]

NAMES = tuple(field.name for field in fields(ViewState))
LENGTHS = ("min_length", "max_length")


def state_now() -> ViewState:
    """What the widgets hold."""
    values: dict[str, Any] = {name: st.session_state[name] for name in NAMES}
    values |= {name: -1 for name in LENGTHS if values[name] is None}
    values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return ViewState(**values)


def set_value(key: str, value: object) -> None:
    st.session_state[key] = value


def open_view(**values: object) -> None:
    for key, value in values.items():
        set_value(key, value)


def first_page() -> None:
    """Another filter begins at its first page."""
    set_value("page", 1)


def fill(state: ViewState) -> None:
    """Let the widgets hold this state."""
    for name in NAMES:
        value = getattr(state, name)
        value = None if name in LENGTHS and value < 0 else value
        set_value(name, list(value) if isinstance(value, tuple) else value)


def read_address() -> None:
    """Take the state from the address on the first run, and when the address was changed since."""
    query = {name: st.query_params.get_all(name) for name in st.query_params}
    if query == st.session_state.get("written"):
        for name in NAMES:  # Streamlit forgets what belongs to a widget that is not shown
            set_value(name, st.session_state[name])
        return
    fill(parse_query(query))
    set_value("written", query)


def write_address() -> None:
    query = query_of(state_now())
    if query != st.session_state["written"]:
        st.query_params.from_dict(query)
        set_value("written", query)


def choose(
    key: str,
    title: str,
    options: Sequence[str],
    shown: Callable[[str], str],
    on_change: Callable[[], None] | None = None,
) -> None:
    st.segmented_control(
        title,
        options,
        format_func=shown,
        key=key,
        required=True,
        on_change=on_change,
        label_visibility="collapsed" if key == "view" else "visible",
    )


def several(key: str, title: str, options: Sequence[str], **more: Any) -> None:
    keep_options(key, [])
    every = [*options, *(one for one in getattr(state_now(), key) if one not in options)]
    st.multiselect(title, every, key=key, on_change=first_page, placeholder="Any", **more)


def keep_options(key: str, options: Sequence[str]) -> None:
    """Take chosen values that are no options any more out of a widget, where options are given."""
    if options:
        set_value(key, [one for one in getattr(state_now(), key) if one in options])


def show_error(error: WorkingsError) -> None:
    st.error(to_markdown(error.message, markdown=False, latex=False))
    if error.hint:
        st.html(markup.note(error.hint))
