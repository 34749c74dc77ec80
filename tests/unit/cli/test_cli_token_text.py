"""Lines of tokens: every token is there, carets stand below trained characters only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny import tiny_tokenizer
from workings.cli.token_text import end_tokens, stop_lines, stop_tokens, token_lines, visible
from workings.data.inspection import TokenView, view_tokens

TOKENIZER = tiny_tokenizer()


def _views(text: str, num_trained: int = 0) -> tuple[TokenView, ...]:
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    return view_tokens(ids, [False] * (len(ids) - num_trained) + [True] * num_trained, TOKENIZER)


def test_trained_tokens_are_underlined() -> None:
    assert token_lines(_views("2+3\nhello<|im_end|>", num_trained=2)) == [
        "  0  2|+|3|↵|",
        "  4  hello|<|im_end|>|",
        "     ^^^^^ ^^^^^^^^^^",
    ]


def test_lines_are_numbered_from_where_they_begin() -> None:
    assert token_lines(_views("ab\nc"), first=10) == ["  10  a|b|↵|", "  13  c|"]


@given(st.text(alphabet="ab +\n", min_size=1, max_size=300), st.integers(0, 5))
def test_no_token_is_lost_and_carets_match(text: str, trained: int) -> None:
    views = _views(text, min(trained, len(_views(text))))
    lines = token_lines(views, width=40)
    shown, carets = "", 0
    for line in lines:
        if line.strip().startswith("^"):
            carets += line.count("^")
        else:
            assert len(line) <= 40
            shown += line.lstrip().partition("  ")[2].replace("|", "")
    assert shown == visible(text)
    assert carets == sum(len(visible(view.text)) for view in views if view.trained)


def test_ends_are_listed_with_their_places() -> None:
    views = _views("<|im_end|>a<|im_end|>", num_trained=1)
    assert end_tokens(views) == "BOS: none; EOS <|im_end|> (3) at 0, 2 (trained)"


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = token_lines(_views("ab", num_trained=1))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert token_lines(_views("ab", num_trained=1))[0] == "  0  a|\x1b[32mb\x1b[0m|"
    monkeypatch.setenv("NO_COLOR", "1")
    assert token_lines(_views("ab", num_trained=1)) == plain


def test_stop_strings_are_found_over_token_borders(monkeypatch: pytest.MonkeyPatch) -> None:
    views = _views("a</b>hello</b>")
    assert stop_lines(views, ["</b>", "</c>"]) == ["stop string '</b>' at 1 to 4, 6 to 9"]
    assert stop_tokens(views, ["</b>"]) == {1, 2, 3, 4, 6, 7, 8, 9}
    assert stop_tokens(views, []) == frozenset()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    (line,) = token_lines(_views("a;b"), marked=stop_tokens(_views("a;b"), [";"]))
    assert line == "  0  a|\x1b[33m;\x1b[0m|b|"
