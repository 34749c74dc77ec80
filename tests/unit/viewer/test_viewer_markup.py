"""HTML: escaped, aligned, and drawn to scale."""

from __future__ import annotations

import re

from workings.viewer.markup import (
    badge,
    file_name,
    head,
    interval_axis,
    legend,
    note,
    table,
    text_cell,
)

EVIL = '<img src=x onerror="alert(1)">'


def test_every_text_is_escaped() -> None:
    cells = [[text_cell(EVIL), text_cell(EVIL, link=f"?x={EVIL}")]]
    made = [
        table([EVIL, EVIL], cells),
        badge(EVIL, title=EVIL),
        head(EVIL, []),
        note(EVIL),
        file_name(EVIL),
        legend({EVIL: "#000"}),
    ]
    for html in made:
        assert "<img" not in html
        assert 'onerror="' not in html
        assert "&lt;img" in html


def test_an_interval_is_drawn_to_scale() -> None:
    drawn = interval_axis(0.5, 0.25, 0.75).content
    assert re.findall(r"left:([\d.]+)%", drawn) == ["25.0", "50.0"]
    assert "width:50.0%" in drawn
    centred = interval_axis(0.1, -0.1, 0.3, start=-0.4, end=0.4, zero=True).content
    assert re.findall(r"left:([\d.]+)%", centred) == ["50.0", "37.5", "62.5"]
    assert "<i" not in interval_axis(0.5, None, None).content
    assert "left:100.0%" in interval_axis(7.0, None, None).content
