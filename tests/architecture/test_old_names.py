"""The page of old names: everything that it sends a reader to is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import workings
from workings.config.fields import find_setting
from workings.config.kinds import RUN_TYPES
from workings.config.sources import shipped_names
from workings.data.preparation.recipes import BENCHMARKS, RECIPES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "old-names.md"


def rows(text: str) -> list[list[str]]:
    """The cells of every row of the page's tables, without heads and rules."""
    lines = [line.strip("| ") for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return [row for row in cells if not row[0].startswith(("---", "earlier"))]


def right_hand_names(text: str) -> list[str]:
    """Everything in backticks behind the first column."""
    return [
        name for row in rows(text) for cell in row[1:] for name in re.findall(r"`([^`]+)`", cell)
    ]


def exists(name: str) -> bool:
    """True for a Python name, a command, a configuration, a setting, or a file that is there."""
    if name.startswith("workings."):
        return _is_python(name)
    if name.startswith("workings data prepare "):
        return name.split()[3] in (*RECIPES, BENCHMARKS)
    if name.startswith("workings "):
        return _is_command(COMMAND.match(name)[0].split()[1:])
    if name.startswith("pytest "):
        return name in ("pytest --cov=workings", *(f"pytest -k test_{k}" for k in RUNS_WITH_TESTS))
    if name.startswith("make "):
        return f"\n{name.removeprefix('make ')}:" in (ROOT / "Makefile").read_text()
    if name == "-c":
        return True
    if name.startswith("-c "):
        return any(name.removeprefix("-c ") in shipped_names(kind) for kind in RUN_TYPES)
    if "/" in name or name in ("pyproject.toml", "constraints.txt"):
        return (ROOT / name).exists()
    return any(find_setting(name.partition("=")[0], kind) is not None for kind in RUN_TYPES)


COMMAND = re.compile(r"workings(?: [a-z][a-z-]*(?=$| ))+")
"""The command and its subcommands; settings and options follow."""
RUNS_WITH_TESTS = ("sft", "grpo", "dpo")


def _is_python(name: str) -> bool:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def _is_command(words: list[str]) -> bool:
    import typer

    from workings.cli.main import app

    command: object = typer.main.get_command(app)
    for word in words:
        command = getattr(command, "commands", {}).get(word)
    return command is not None


@pytest.mark.parametrize("name", sorted(set(right_hand_names(PAGE.read_text(encoding="utf-8")))))
def test_every_right_hand_name_exists(name: str) -> None:
    assert exists(name), name


def test_every_importable_old_name_is_on_the_page() -> None:
    left = " ".join(row[0] for row in rows(PAGE.read_text(encoding="utf-8")))
    named = set(re.findall(r"[\w.]+", left))
    own = {"SFTConfig"}  # ours: the right-hand side of SFTTrainingConfig
    assert set(workings._EARLIER) - own <= named


@pytest.mark.parametrize("kind", RUNS_WITH_TESTS)
def test_sft_grpo_and_dpo_tests_are_selected_by_their_names(kind: str) -> None:
    texts = (file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    assert any(re.search(rf"^def test_{kind}_", text, re.MULTILINE) for text in texts)


def test_a_name_that_is_not_there_is_found() -> None:
    assert not exists("workings.nope")
    assert not exists("workings.training.course.nope")
    assert not exists("workings nope")
    assert not exists("workings inspect nope")
    assert not exists("-c nope")
    assert not exists("src/nope.py")
    assert not exists("make nope")
    assert not exists("model.nope")
    assert exists("workings.training.course")
    assert rows("| earlier | here |\n|---|---|\n| `a` | `b`, `c` |\n") == [["`a`", "`b`, `c`"]]
