"""Imports go strictly down through the rooms, and rooms on one line do not import each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "workings"

LINES: tuple[tuple[str, ...], ...] = (
    ("types", "errors", "seeds"),
    ("config", "tracking"),
    ("data", "grading", "objectives", "models"),
    ("rollout", "rewards"),
    ("evaluation",),
    ("training",),
    ("launch", "viewer"),
    ("cli",),
    ("earlier",),
)
LINE_OF = {room: line for line, rooms in enumerate(LINES) for room in rooms}
# Optional parts, each imported by the one file that adapts it.
ADAPTED = ("wandb", "vllm", "ray", "liger_kernel", "streamlit", "bitsandbytes", "torchao")


def imported_modules(source: str, module: str) -> Iterator[str]:
    """Dotted names that a module imports, inside functions too, without those for types only."""
    tree = ast.parse(source)
    skipped = {id(node) for block in _for_types_only(tree) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".")[: -node.level]
                base = ".".join([*package, base] if base else package)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _for_types_only(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from node.body


def upward_imports(source: str, module: str) -> list[str]:
    """One line for every import of `module` that does not go strictly down."""
    room = module.split(".")[1] if "." in module else ""
    found = []
    for name in imported_modules(source, module):
        package, _, rest = name.partition(".")
        if package != "workings" or rest in ("", "__version__"):
            continue
        other = rest.split(".")[0]
        if other not in LINE_OF:
            found.append(f"{module} imports {name}: name the module that defines it")
        elif other != room and LINE_OF[other] >= LINE_OF.get(room, len(LINES)):
            found.append(f"{module} imports {name}: {other} is not below {room}")
    return found


@cache
def _imports(module: str, path: Path) -> frozenset[str]:
    return frozenset(imported_modules(path.read_text(encoding="utf-8"), module))


def _modules() -> list[tuple[str, Path]]:
    return [
        (".".join(["workings", *path.relative_to(SOURCE).with_suffix("").parts]), path)
        for path in sorted(SOURCE.rglob("*.py"))
    ]


@pytest.mark.parametrize(("module", "path"), _modules())
def test_imports_go_down(module: str, path: Path) -> None:
    assert upward_imports(path.read_text(encoding="utf-8"), module) == []


def test_every_room_has_its_line() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    files = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    assert rooms - {"conf"} | files == set(LINE_OF)


def test_inner_init_files_are_empty() -> None:
    inner = [path for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE]
    assert [path for path in inner if path.read_text(encoding="utf-8").strip()] == []


@pytest.mark.parametrize("package", ADAPTED)
def test_an_optional_part_is_imported_in_one_file(package: str) -> None:
    importers = [
        module
        for module, path in _modules()
        if any(name.split(".")[0] == package for name in _imports(module, path))
    ]
    assert len(importers) <= 1, importers


# --------------------------------------------------------------- the checker, shown to fail


@pytest.mark.parametrize(
    ("module", "source", "message"),
    [
        (
            "workings.config.grpo",
            "from workings.training.grpo import train",
            "workings.config.grpo imports workings.training.grpo.train: "
            "training is not below config",
        ),
        (
            "workings.data.loading",
            "def f():\n    import workings.grading.grader",
            "workings.data.loading imports workings.grading.grader: grading is not below data",
        ),
        (
            "workings.data.loading",
            "from ..models import load",
            "workings.data.loading imports workings.models.load: models is not below data",
        ),
        (
            "workings.types",
            "from workings.errors import ConfigError",
            "workings.types imports workings.errors.ConfigError: errors is not below types",
        ),
        (
            "workings.data.loading",
            "from workings import compose",
            "workings.data.loading imports workings.compose: name the module that defines it",
        ),
    ],
)
def test_an_upward_import_is_found(module: str, source: str, message: str) -> None:
    assert upward_imports(source, module) == [message]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("workings.cli.main", "import workings\nfrom workings.training.grpo import train"),
        ("workings.data.loading", "from workings.data.table import Table\nimport torch"),
        ("workings.data.loading", "from .table import Table\nfrom . import split"),
        (
            "workings.rollout.engine",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import workings.cli.main",
        ),
        ("workings.tracking.environment", "from workings import __version__"),
    ],
)
def test_a_downward_import_is_not(module: str, source: str) -> None:
    assert upward_imports(source, module) == []
