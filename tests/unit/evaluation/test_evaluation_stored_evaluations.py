"""Finding evaluations in folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workings.errors import DataError
from workings.evaluation.stored_evaluations import differing_settings, find_evaluation


def _results(folder: Path, settings: dict[str, object] | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "results.jsonl").write_text("{}\n")
    if settings is not None:
        summary = {"total_examples": 1, "aggregate_metrics": {}, "settings": settings}
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder / "results.jsonl"


def test_an_evaluation_run(tmp_path: Path) -> None:
    files = {name: _results(tmp_path / name) for name in ("gsm8k", "math500")}
    found = find_evaluation(tmp_path)
    assert found is not None
    assert (dict(found.data_sets), found.step) == (files, None)
    with pytest.raises(DataError, match="is no training run with evaluations"):
        find_evaluation(tmp_path, step=3)


def test_one_data_set_by_its_folder_or_its_file(tmp_path: Path) -> None:
    file = _results(tmp_path / "gsm8k")
    for path in (file, file.parent):
        found = find_evaluation(path)
        assert found is not None
        assert found.data_sets == {"gsm8k": file}


def test_a_file_whose_rows_name_their_data_sets(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    rows = [{"generated_text": "", "data_source": name} for name in ("math", "aime", "math")]
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"generated_text": ""}]))
    for path in (file, tmp_path):
        found = find_evaluation(path)
        assert found is not None
        assert list(found.data_sets.items()) == [(n, file) for n in ("math", "aime", "unknown")]
        assert found.by_row
    of_none = {"generated_text": "", "data_source": "unknown"}
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k" / "base.jsonl").write_text(json.dumps(of_none) + "\n")
    unnamed = find_evaluation(tmp_path / "gsm8k" / "base.jsonl")
    assert unnamed is not None
    assert list(unnamed.data_sets) == ["gsm8k"]


def test_the_last_evaluation_of_a_training_run(tmp_path: Path) -> None:
    files = {
        step: _results(tmp_path / "eval" / f"step_{step:06d}" / "validation") for step in (2, 10)
    }
    (tmp_path / "eval" / "step_000020").mkdir()
    last, first = find_evaluation(tmp_path), find_evaluation(tmp_path, step=2)
    assert last is not None
    assert first is not None
    assert (last.step, last.data_sets["validation"]) == (10, files[10])
    assert (first.step, first.data_sets["validation"]) == (2, files[2])
    with pytest.raises(DataError, match="has no evaluation at step 20; it has 2, 10"):
        find_evaluation(tmp_path, step=20)


def test_no_results_and_no_folder(tmp_path: Path) -> None:
    assert find_evaluation(tmp_path) is None
    with pytest.raises(DataError, match="no folder"):
        find_evaluation(tmp_path / "absent")


def test_settings_that_differ(tmp_path: Path) -> None:
    base = {"template": "r1_zero", "sampling": {"temperature": 0.0}, "model": "a", "seed": 0}
    first = _results(tmp_path / "a", base)
    alike = _results(tmp_path / "b", {**base, "model": "b", "seed": 1})
    other = _results(tmp_path / "c", {**base, "sampling": {"temperature": 1.0}, "num_samples": 4})
    assert differing_settings(first, alike) == []
    assert differing_settings(first, other) == [
        "sampling.temperature 0.0 and 1.0",
        "num_samples None and 4",
    ]
    assert differing_settings(first, _results(tmp_path / "d")) == []
