"""`workings data list`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workings.cli.main import main

Captured = pytest.CaptureFixture[str]


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    (tmp_path / "gsm8k_test.parquet").touch()
    (tmp_path / "math500.jsonl").touch()
    monkeypatch.setenv("WORKINGS_DATA_DIR", str(tmp_path))
    assert main(["data", "list"]) == 0
    out, err = capsys.readouterr()
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert rows["gsm8k"][1:5] == ["1,319", "pass@1", "text", "gsm8k_test.parquet"]
    assert rows["gsm8k"][5:] == ["openai/gsm8k", "main", "(test)"]
    assert rows["aime24"][1:5] == ["30", "avg@32", "text", "-"]
    assert rows["math"][4] == "-"  # one of its two files is not enough
    assert rows["math500"][4] == "math500.jsonl"
    assert rows["college_math"][4:] == ["-", "local", "files", "only"]
    assert rows["arithmetic"][4:] == ["generated", "generated", "(test)"]
    assert "luffy_maths: aime24, aime25, amc, math500, minerva_math, olympiadbench" in out
    assert "minerva is minerva_math" in out
    assert "gpqa_diamond: Its authors ask that no question is published in clear" in out
    assert err == f"note: local copies are looked for in {tmp_path} (WORKINGS_DATA_DIR)\n"


def test_json(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.delenv("WORKINGS_DATA_DIR", raising=False)
    assert main(["data", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["aime"] == {
        "name": "aime",
        "problems": 120,
        "counted": "avg@32",
        "num_samples": 32,
        "answers": "text",
        "sources": [
            "AI-MO/aimo-validation-aime (train)",
            "opencompass/AIME2025 AIME2025-I+AIME2025-II (test)",
        ],
        "local_names": ["aime", "aime22+aime23+aime24+aime25"],
        "local_copy": None,
        "note": None,
    }
    assert rows["mmlu"]["counted"] == "accuracy by subject"
    assert rows["simple_safety_tests"]["counted"] == "share judged safe"
