"""Which test shows each known fault of the field to be absent, found by the ids in test names.

A test carries the ids of the probes that it is: `test_a3b_d13_prompt_ids_are_the_same_everywhere`.
A test of the same content under another name is listed in `ALSO`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from generators.blocks import ROOT, Blocks, table
from generators.fault_list import ALSO, LATER, PROBES

PAGE = ROOT / "docs" / "reference" / "faults.md"
TESTS = ROOT / "tests"


def blocks() -> Blocks:
    """The page's two tables."""
    found = evidence(TESTS)
    peers = {key: text for key, text in PROBES.items() if key.startswith("A")}
    defects = {key: text for key, text in PROBES.items() if key.startswith("D")}
    return {PAGE: {"faults-a": _table(peers, found), "faults-d": _table(defects, found)}}


def evidence(tests: Path) -> dict[str, list[str]]:
    """Probe id to "path::test" of every test that carries it, and of those in `ALSO`."""
    found: dict[str, list[str]] = {key: [] for key in PROBES}
    for file in sorted(tests.rglob("test_*.py")):
        for name in test_names(file.read_text(encoding="utf-8")):
            for key in ids_in(name):
                if key in found:
                    found[key].append(f"{file.relative_to(tests.parent).as_posix()}::{name}")
    for key, names in ALSO.items():
        found[key] += [name for name in names if name not in found[key]]
    return found


def test_names(source: str) -> list[str]:
    """The test functions of a file, in order."""
    return [
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def ids_in(name: str) -> list[str]:
    """The probe ids that a test's name carries.

    >>> ids_in("test_a3b_d13_prompt_ids_are_the_same"), ids_in("test_A15a_bombs"), ids_in("test_a")
    (['A3b', 'D13'], ['A15a'], [])
    """
    parts = name.split("_")
    return [part[0].upper() + part[1:] for part in parts if re.fullmatch(r"[aAdD]\d+[a-e]?", part)]


def without_evidence() -> list[str]:
    """Probes that no test shows and that are not said to come later."""
    return [key for key, tests in evidence(TESTS).items() if not tests and key not in LATER]


def _table(probes: dict[str, str], found: dict[str, list[str]]) -> str:
    rows = []
    for key, text in probes.items():
        shown = "<br>".join(f"`{name.removeprefix('tests/')}`" for name in found[key])
        later = f"later: {LATER[key]}" if key in LATER else ""
        both = "<br>".join(part for part in (shown, later) if part)
        rows.append([key, text, both or "no test carries this id"])
    return table(["id", "what must hold", "shown by"], rows)
