"""Every example in a docstring gives what it says."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "workings"


def modules_with_examples() -> list[str]:
    """Modules whose text holds an example."""
    return [
        ".".join(["workings", *path.relative_to(SOURCE).with_suffix("").parts])
        for path in sorted(SOURCE.rglob("*.py"))
        if ">>> " in path.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in sorted((SOURCE.parents[1] / "docs").rglob("*.md"))
        if ">>> " in page.read_text(encoding="utf-8")
    ],
    ids=lambda page: page.stem,
)
def test_examples_of_the_documentation(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    text = "\n".join("" if line.startswith("```") else line for line in lines)
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 0
    assert result.failed == 0
