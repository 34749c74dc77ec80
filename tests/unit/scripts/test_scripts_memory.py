"""The memory benchmark: cases on a CPU, and what it says of one that fails."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SMALL = ["--shape", "tiny", "--device", "cpu", "--prompt-tokens", "8", "--output-tokens", "6"]
SMALL += ["--microbatch-tokens", "64", "--steps", "2", "--case", "full", "--case", "lora"]


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import measurement
    import memory_side
    from workers import Here

    made = SimpleNamespace(Maker=measurement.Maker, Trainer=memory_side.Trainer)
    monkeypatch.setattr(
        measurement, "Elsewhere", lambda name, **_: Here(getattr(made, name.split(":")[1])())
    )


def test_cases_train_as_they_are_and_are_reported(tmp_path: Path) -> None:
    import memory

    out = tmp_path / "memory.json"
    arguments = [*SMALL, "--models", str(tmp_path), "--output", str(out), "--commit", "abc"]
    assert memory.main(arguments) == 0
    content = json.loads(out.read_text())
    found = [(row["name"], row["unit"]) for row in content["results"]]
    assert found == [
        (f"tiny, {title}, {what}", unit)
        for title in ("all weights, optimizer.offload", "LoRA of rank 32")
        for what, unit in (("memory held", "GiB"), ("a step", "s"))
    ]
    assert content["results"][1]["n"] == 1
    assert "batch.microbatch_tokens 64" in content["notes"][0]


def test_a_case_that_fails_is_accounted_for_and_the_next_one_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import memory
    import memory_side

    def short(case: Any, *settings: Any) -> None:
        if case.name == "full":
            raise RuntimeError("CUDA out of memory\nof some kind")
        settings[-1].append({"step_time": 1.5})

    monkeypatch.setattr(memory_side, "train", short)
    arguments = [*SMALL, "--models", str(tmp_path), "--output", str(tmp_path / "memory.json")]
    assert memory.main(arguments) == 1
    printed = capsys.readouterr().out
    assert "full (all weights, optimizer.offload) under 24 GiB: FAILS" in printed
    assert 'raise RuntimeError("CUDA out of memory' in printed
    assert "lora (LoRA of rank 32) under 12 GiB: fits; held 0.00 GiB" in printed
