"""From a path to rows in one call, for files and for generated tasks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from workings.data.loading import load_demonstrations, load_preferences, load_problems
from workings.errors import DataError


@pytest.fixture
def train_file(tmp_path: Path) -> Path:
    rows = [{"problem": f"{n}+1?", "answer": str(n + 1), "solution": "s"} for n in range(50)]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_under_another_name_with_a_limit(train_file: Path) -> None:
    loaded = load_problems(train_file, name="sums", limit=10, seed=3)
    assert (loaded.name, len(loaded.items), loaded.total) == ("sums", 10, 50)
    assert loaded.dropped == {"over_limit": 40}
    assert loaded.items[0].id.startswith("sums/")
    assert load_problems(train_file, name="sums", limit=10, seed=3) == loaded
    first = load_problems(train_file, limit=3, limit_order="first")
    assert [problem.id for problem in first.items] == ["train/0", "train/1", "train/2"]


def test_demonstrations_and_pairs(train_file: Path, tmp_path: Path) -> None:
    assert load_demonstrations(train_file, limit=7).items[0].response == "s"
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"prompt": "q", "chosen": "a", "rejected": "b"}\n')
    assert load_preferences(pairs).items[0].chosen == "a"


def test_generated_arithmetic() -> None:
    options = {"terms": [2, 3], "steps": "chain", "num_problems": 40}
    problems = load_problems("arithmetic", options=options, seed=1)
    rows = load_demonstrations("arithmetic", options=options, seed=1)
    assert len(problems.items) == 40
    assert [row.id for row in rows.items] == [problem.id for problem in problems.items]
    assert problems.origin == "arithmetic (generated)"
    held_out = load_problems("arithmetic", options=options, seed=1, split="test", limit=5)
    assert not {p.question for p in held_out.items} & {p.question for p in problems.items}


def test_generated_reasoning_gym() -> None:
    pytest.importorskip("reasoning_gym")
    loaded = load_problems("reasoning_gym/chain_sum", options={"num_problems": 5})
    assert len(loaded.items) == 5
    with pytest.raises(DataError, match="has problems but no responses to imitate"):
        load_demonstrations("reasoning_gym/chain_sum")


def test_settings_without_effect_are_refused(train_file: Path) -> None:
    with pytest.raises(DataError, match=r"options \(terms\) are settings of a generated task"):
        load_problems(train_file, options={"terms": 3})
    with pytest.raises(DataError, match="subset and columns have no effect on arithmetic"):
        load_problems("arithmetic", subset="x", columns={"answer": "a"})
    with pytest.raises(
        DataError, match="option num_problems='5' of arithmetic; expected an integer"
    ):
        load_problems("arithmetic", options={"num_problems": "5"})


def test_the_room_is_light() -> None:
    code = (
        "import pkgutil, importlib, sys, workings.data as room\n"
        "for module in pkgutil.iter_modules(room.__path__):\n"
        "    importlib.import_module('workings.data.' + module.name)\n"
        "heavy = {'torch', 'transformers', 'datasets', 'pyarrow', 'numpy', 'yaml', 'jinja2'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
