"""What the documentation says is so: generated parts, references, links, ids, versions."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import workings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "workings"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
MISSION = DOCS / "reference" / "mission.md"
# Sections of the mission checklist, by number of the first and last id.
MISSION_IDS = [
    *((1, 17), (20, 29), (30, 46), (50, 61), (65, 67), (70, 83), (90, 97), (100, 100)),
    *((110, 116), (120, 126), (130, 141), (150, 154), (160, 166), (170, 173), (180, 183)),
    *((190, 194), (200, 202)),
]


@pytest.fixture(autouse=True)
def _generators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# ------------------------------------------------------------------------------ generated parts


def test_generated_blocks_are_up_to_date() -> None:
    """If this fails: python docs/generate.py."""
    import generate
    from generators.blocks import stale_pages

    assert [name_of(page) for page in stale_pages(generate.every_block())] == []


def test_measured_numbers_are_up_to_date() -> None:
    """If this fails: python benchmarks/report.py."""
    import report

    assert report.main(["--check"]) == 0


def test_every_generated_block_has_its_generator() -> None:
    import generate
    import report
    from generators.blocks import block_names

    written: dict[Path, set[str]] = {}
    for blocks in (generate.every_block(), report.blocks()):
        for page, contents in blocks.items():
            written.setdefault(page, set()).update(contents)
    found = {page: set(block_names(text_of(page))) for page in PAGES}
    assert {page: names for page, names in found.items() if names} == written


@pytest.mark.parametrize("name", sorted(p.stem for p in (DOCS / "generators").glob("*.py")))
def test_examples_of_the_generators(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"generators.{name}")).failed == 0


def test_results_become_a_table(tmp_path: Path) -> None:
    import report

    assert report.describe_all(report.read_results(tmp_path), heading="##") == report.NONE_YET
    (tmp_path / "quickstart.json").write_text(
        """{"benchmark": "quickstart", "command": "make quickstart", "commit": "0123456789abcdef",
        "date": "2026-12-01", "machine": {"cpus": 2, "memory": "8 GB"},
        "versions": {"torch": "2.13"},
        "results": [
            {"name": "quickstart/accuracy/GRPO", "value": 71.333, "unit": "%", "low": 68.9,
             "high": 73.6, "n": 500, "seeds": [0, 1, 2], "note": "mean of three seeds | greedy"},
            {"name": "accuracy, SFT, seed 0", "value": 51.0, "unit": "%", "low": 46, "high": 55,
             "n": 500, "seeds": [0]},
            {"name": "accuracy, SFT, seed 1", "value": 49.25, "unit": "%", "low": 44, "high": 53,
             "n": 500, "seeds": [1]},
            {"name": "quickstart/seconds", "value": 612, "unit": "s", "peer": "TRL",
             "peer_value": 7500.0, "ratio": 12.25}
        ]}"""
    )
    described = report.describe_all(report.read_results(tmp_path), heading="##")
    assert described.splitlines() == [
        "## quickstart",
        "",
        "| what | seed 0 | seed 1 |",
        "| --- | --- | --- |",
        "| accuracy, SFT | 51 % (46 to 55) | 49.25 % (44 to 53) |",
        "",
        "In brackets 95 % intervals; n = 500.",
        "",
        "| what | value | 95 % interval | n | seeds | compared with | ratio | note |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| quickstart/accuracy/GRPO | 71.33 % | 68.9 to 73.6 | 500 | 0, 1, 2 |  |  | "
        "mean of three seeds \\| greedy |",
        "| quickstart/seconds | 612 s |  |  |  | TRL 7,500 | 12.25 |  |",
        "",
        "Measured by `make quickstart`; on cpus 2, memory 8 GB; commit 0123456789ab; torch 2.13; "
        "2026-12-01.",
    ]
    (tmp_path / "broken.json").write_text(
        '{"benchmark": "x", "command": "y", "results": [{"v": 1}]}'
    )
    with pytest.raises(ValueError, match="a result has the fields v; expected name, value and"):
        report.read_results(tmp_path)


def test_the_same_benchmark_on_two_cards_has_two_headings() -> None:
    import report

    row = {"name": "rate", "value": 2.0}
    files = [
        {"benchmark": "rollout", "command": "c", "machine": {"gpu": gpu}, "results": [row]}
        for gpu in ("NVIDIA H100", "NVIDIA H200")
    ]
    described = report.describe_all(files, heading="##").splitlines()
    headings = [line for line in described if line.startswith("##")]
    assert headings == ["## rollout, NVIDIA H100", "## rollout, NVIDIA H200"]


# ------------------------------------------------------------------------ references and links


def broken_references(text: str, root: Path) -> list[str]:
    """Every `file.py#name` and every `path/to/file` in backticks that does not exist."""
    broken = []
    for path, name in re.findall(r"`([\w./-]+\.py)#([\w.]+)`", text):
        problem = missing_symbol(root / path, name)
        if problem:
            broken.append(f"{path}#{name}: {problem}")
    folders = "src|tests|examples|docs|benchmarks"
    for path in re.findall(rf"`((?:{folders})/[\w./-]+)`", text):
        if not (root / path).exists() and path != "docs/images/quickstart.png":
            broken.append(f"{path} does not exist")
    return broken


def missing_symbol(file: Path, name: str) -> str:
    """What is wrong with a name in a file; empty if it is defined there."""
    if not file.is_file():
        return "no such file"
    body = ast.parse(text_of(file)).body
    for part in name.split("."):
        node = next((node for node in body if part in defined_by(node)), None)
        if node is None:
            return f"{part} is not defined"
        body = getattr(node, "body", [])
    return ""


def defined_by(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_references_resolve(page: Path) -> None:
    assert broken_references(text_of(page), ROOT) == []


def broken_links(page: Path) -> list[str]:
    """Relative links to a page or heading that is not there."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", outside_code(text_of(page))):
        if re.match(r"\w+:", target):
            continue
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (heading and heading not in headings(text_of(file))):
            broken.append(target)
    return broken


def outside_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]+`", "", text, flags=re.DOTALL)


def headings(text: str) -> set[str]:
    """The anchors of a page's headings, as mkdocs makes them."""
    titles = re.findall(r"^#+ (.+)$", outside_code(text), re.MULTILINE)
    return {
        re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_every_page_is_in_the_navigation() -> None:
    listed = set(_leaves(yaml.safe_load(text_of(ROOT / "mkdocs.yml"))["nav"]))
    assert listed == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def _leaves(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, list):
        for item in entry:
            yield from _leaves(item)
    elif isinstance(entry, dict):
        for item in entry.values():
            yield from _leaves(item)


def test_the_site_loads_nothing_from_elsewhere() -> None:
    settings = yaml.safe_load(text_of(ROOT / "mkdocs.yml"))
    assert settings["theme"]["font"] is False
    assert settings["plugins"] == ["search"]
    assert settings.keys() & {"extra", "extra_javascript", "extra_css"} == set()


# ---------------------------------------------------------------------------------- python code


def python_problems(text: str) -> list[str]:
    """What is wrong with a page's Python blocks: syntax, or a public name that is none."""
    problems = []
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        try:
            tree = ast.parse(code)
        except SyntaxError as error:
            problems.append(str(error))
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "workings":
                names = [alias.name for alias in node.names]
                problems += [f"no public name {n}" for n in names if n not in workings.__all__]
    return problems


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_of_the_docs_uses_public_names(page: Path) -> None:
    blocks = text_of(page).replace("optimizer, ...)", "optimizer)").replace(", ...)", ")")
    assert python_problems(blocks) == []


# ----------------------------------------------------------------------------- mission and faults


def mission_rows() -> dict[str, list[str]]:
    """Mission id to the cells of its row."""
    rows = re.findall(r"^\| (M-\d{3}) \| (.*) \|$", text_of(MISSION), re.MULTILINE)
    assert len({key for key, _ in rows}) == len(rows)
    return {key: [cell.strip() for cell in cells.split(" | ")] for key, cells in rows}


def test_the_mission_page_has_every_id() -> None:
    expected = [f"M-{n:03}" for first, last in MISSION_IDS for n in range(first, last + 1)]
    assert list(mission_rows()) == expected


@pytest.mark.parametrize(("key", "cells"), mission_rows().items(), ids=str)
def test_a_mission_row_names_files_and_tests_that_exist(key: str, cells: list[str]) -> None:
    what, status, where, shown = [*cells, "", ""][:4]
    assert what
    assert re.match(r"here|partly: |later", status)
    for path in re.findall(r"`([^`]+)`", where):
        assert (SOURCE / path).exists() or (ROOT / path).exists(), path
    tests = re.findall(r"`([^`]+)`", shown)
    assert tests or not status.startswith("here") or key in {"M-165", "M-166", "M-194"}
    for test in tests:
        file, _, name = test.partition("::")
        assert f"def {name}(" in text_of(ROOT / "tests" / file), test


def test_tests_that_carry_a_mission_id_are_on_the_page() -> None:
    carried = {
        f"M-{int(number):03}"
        for file in (ROOT / "tests").rglob("test_*.py")
        for number in re.findall(r"def test_M(\d+)_", text_of(file))
    }
    assert carried <= mission_rows().keys()


def test_every_fault_is_shown_or_said_to_come_later() -> None:
    from generators.faults import without_evidence

    assert without_evidence() == []


def test_tests_named_beside_the_ids_exist() -> None:
    from generators.fault_list import ALSO, LATER, PROBES
    from generators.faults import test_names

    assert ALSO.keys() | LATER.keys() <= PROBES.keys()
    for name in (name for names in ALSO.values() for name in names):
        file, _, function = name.partition("::")
        assert function in test_names(text_of(ROOT / file)), name


def test_a13c_the_documentation_explains_a_loss_near_zero() -> None:
    text = " ".join(text_of(DOCS / "concepts" / "the-loss.md").split())
    assert "A policy loss near zero is normal" in text
    assert "advantages of a group sum to zero" in text
    assert "`train/grad_norm` | above 0" in text


# ------------------------------------------------------------------------ versions and set-up


def test_the_newest_version_of_the_changelog_is_the_packages() -> None:
    versions = re.findall(r"^## \[([^\]]+)\]", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert versions[0] == workings.__version__ == _project()["version"]


def test_the_python_versions_of_the_docs_are_the_packages() -> None:
    (bounds,) = re.findall(r"^>=3\.(\d+),<3\.(\d+)$", _project()["requires-python"])
    low, high = map(int, bounds)
    listed = " or ".join(f"3.{minor}" for minor in range(low, high))
    for page in (ROOT / "README.md", DOCS / "reference" / "dependencies.md"):
        assert re.search(rf"Python (is )?{re.escape(listed)}", text_of(page))


def test_every_dependency_is_explained() -> None:
    text = text_of(DOCS / "reference" / "dependencies.md")
    project = _project()
    needed = project["dependencies"]
    needed += [name for extra in project["optional-dependencies"].values() for name in extra]
    names = [re.split(r"[\[<>=!~ ]", requirement)[0] for requirement in needed]
    assert [name for name in names if name not in text] == []
    assert [extra for extra in project["optional-dependencies"] if f"`{extra}`" not in text] == []


def test_make_targets_of_the_docs_exist() -> None:
    makefile = text_of(ROOT / "Makefile")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    used = {
        target
        for page in PAGES
        for target in re.findall(r"(?:^|`)make ([\w-]+)", text_of(page), re.MULTILINE)
    }
    assert {"quickstart", "test", "check", "docs"} <= used <= targets


def _project() -> dict:  # type: ignore[type-arg]
    return tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]


# ------------------------------------------------------------------- the checkers, shown to fail


def test_a_broken_reference_is_found(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("X = 1\n\nclass A:\n    def f(self): ...\n")
    good = "`src/a.py#X` `src/a.py#A.f` `src/a.py`"
    assert broken_references(good, tmp_path) == []
    bad = "`src/a.py#A.g` `src/b.py#X` `src/a.py#f` `src/c`"
    assert broken_references(bad, tmp_path) == [
        "src/a.py#A.g: g is not defined",
        "src/b.py#X: no such file",
        "src/a.py#f: f is not defined",
        "src/c does not exist",
    ]


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# A title\n[ok](#a-title) [ok](b.md#b-2) [no](c.md) [no](b.md#c)\n")
    (tmp_path / "b.md").write_text("# B: 2\n```\n# c\n```\n")
    assert broken_links(page) == ["c.md", "b.md#c"]


def test_wrong_python_is_found() -> None:
    text = "```python\nfrom workings import grade, nope\n```\n```python\nx = (\n```\n"
    name, syntax = python_problems(text)
    assert name == "no public name nope"
    assert "was never closed" in syntax


def test_a_stale_block_is_found(tmp_path: Path) -> None:
    from generators.blocks import read_block, replace_block, stale_pages

    page = tmp_path / "page.md"
    page.write_text("a\n<!-- generated x, by y -->\n\nold\n\n<!-- end x -->\nb\n")
    assert stale_pages({page: {"x": "old"}}) == {}
    (after,) = stale_pages({page: {"x": "new | \\1"}}).values()
    assert after == "a\n<!-- generated x, by y -->\n\nnew | \\1\n\n<!-- end x -->\nb\n"
    assert read_block(after, "x") == "new | \\1"
    with pytest.raises(ValueError, match="no block 'z', or two"):
        replace_block(after, "z", "")


def test_ids_are_read_from_the_names_of_tests() -> None:
    from generators.faults import ids_in, test_names

    assert ids_in("test_a3b_d13_prompt_ids") == ["A3b", "D13"]
    assert ids_in("test_a_bomb_of_3_d") == []
    assert test_names("def test_a():\n    def test_b(): ...\ndef c(): ...\n") == ["test_a"]
    assert "generators.faults" in sys.modules
