"""All public names of the package, with the first line of their docstrings."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from generators.blocks import ROOT, Blocks, table

import workings

PAGE = ROOT / "docs" / "reference" / "all-of-workings.md"


def blocks() -> Blocks:
    """The page's one block."""
    parts = [
        f"## {heading[0].upper()}{heading[1:]}\n\n"
        + table(
            ["name", "what it is", "from"],
            [
                [f"`{name}`", first_line(getattr(workings, name)), f"`{workings._PUBLIC[name]}`"]
                for name in names
            ],
        )
        for heading, names in sections(Path(workings.__file__).read_text(encoding="utf-8"))
    ]
    return {PAGE: {"names": "\n\n".join(parts)}}


def first_line(value: object) -> str:
    """The first sentence of an object's docstring, up to the first blank line or line's end.

    >>> first_line(inspect.cleandoc)
    'Clean up indentation from docstrings.'
    """
    text = inspect.getdoc(value) or ""
    return text.partition("\n\n")[0].partition("\n")[0].strip()


def sections(source: str) -> list[tuple[str, list[str]]]:
    """(comment, names) of the table of public names in the package's `__init__.py`.

    >>> sections('_PUBLIC: dict[str, str] = {\\n    # records\\n    "Grade": "workings.types",\\n}')
    [('records', ['Grade'])]
    """
    tree = ast.parse(source)
    node = next(
        node
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "_PUBLIC"
    )
    lines = source.splitlines()[node.lineno : (node.end_lineno or node.lineno) - 1]
    found: list[tuple[str, list[str]]] = []
    for line in map(str.strip, lines):
        if line.startswith("#"):
            found.append((line.removeprefix("#").strip(), []))
        else:
            found[-1][1].append(line.split('"')[1])
    return found
