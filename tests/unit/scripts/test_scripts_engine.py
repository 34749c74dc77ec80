"""benchmarks/engine_correctness.py and engine_refresh.py, on a tiny model and this CPU."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from pyarrow import Table, parquet

from tiny import save_tiny

ROOT = Path(__file__).parents[3]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))

    def load(name: str) -> Any:
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    return load


def rows_of(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    content = json.loads((folder / f"{name}.json").read_text())
    assert content["benchmark"] == name
    return {row["name"]: row for row in content["results"]}


def test_engine_correctness_on_a_tiny_model(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = script("engine_correctness")
    model = save_tiny(tmp_path / "model")
    problems = ["hello", "what is 3+4?", "zz. more"]
    parquet.write_table(Table.from_pydict({"problem": problems}), tmp_path / "gsm8k_test.parquet")
    monkeypatch.setenv("WORKINGS_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(module, "DRAWS", 2000)
    out = tmp_path / "out"
    arguments = ["--model", str(model), "--device", "cpu", "--prompts", "3", "--tokens", "20"]
    assert module.main([*arguments, "--out", str(out)]) == 0
    rows = rows_of(out, "engine_correctness")
    assert rows["greedy ids equal to transformers', float32"]["value"] == 100.0
    gap = "largest gap of a log-probability to a float32 forward pass, float32"
    assert rows[gap]["value"] < 1e-4
    ratio = rows["mean importance ratio, trainer over engine, both bfloat16"]
    assert 0.9 < ratio["low"] < ratio["high"] < 1.1
    p_values = [row["value"] for name, row in rows.items() if name.startswith("p-value")]
    assert len(p_values) == 4
    assert all(value > 1e-4 for value in p_values)


def test_kept_probabilities_by_hand(script: Any) -> None:
    module = script("engine_correctness")
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    params = module.SamplingParams
    for sampling, wanted in (
        (params(), [0.4, 0.3, 0.2, 0.1]),
        (params(top_k=2), [4 / 7, 3 / 7, 0.0, 0.0]),
        (params(top_p=0.65), [4 / 7, 3 / 7, 0.0, 0.0]),
        (params(min_p=0.45), [4 / 9, 3 / 9, 2 / 9, 0.0]),
        (params(top_k=3, top_p=0.7), [4 / 7, 3 / 7, 0.0, 0.0]),
    ):
        assert module.kept_probabilities(logits, sampling).tolist() == pytest.approx(wanted)


def test_a_difference_is_located_and_its_gap_measured(script: Any) -> None:
    module = script("engine_correctness")
    assert module._up_to_first_difference((1, 2, 3, 4), (1, 2, 9, 4)) == (1, 2, 3)
    assert module._up_to_first_difference((1, 2), (1, 2, 5)) == (1, 2)


def test_engine_refresh_on_a_tiny_shape(script: Any, tmp_path: Path) -> None:
    module = script("engine_refresh")
    arguments = ["--shape", "tiny", "--device", "cpu", "--repeats", "2", "--out", str(tmp_path)]
    assert module.main(arguments) == 0
    rows = rows_of(tmp_path, "engine_refresh")
    assert rows["full refresh, tiny"]["value"] > 0
    assert rows["base weights changed by 2 LoRA refreshes, tiny"]["value"] == 0
