"""`workings judge`, after `workings eval` on sets without golds, with the tiny model as both."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from workings.cli.main import main

Captured = pytest.CaptureFixture[str]


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.fixture
def judge(tiny_folder: Path, tmp_path: Path) -> Path:
    """The tiny model with positions enough for a judge's prompts."""
    folder = shutil.copytree(tiny_folder, tmp_path / "judge")
    config = read(folder / "config.json") | {"max_position_embeddings": 2048}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def evaluation(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An evaluation on two instructions and two unsafe prompts."""
    data = tmp_path / "data"
    data.mkdir()
    rows = [
        {"instruction": f"Name tree {i}.", "output": "Oak.", "generator": "ref", "dataset": "koala"}
        for i in range(2)
    ]
    (data / "alpaca_eval.json").write_text(json.dumps(rows))
    (data / "simple_safety_tests.csv").write_text(
        "id,harm_area,counter,category,prompts_final\na,Scams,1,c,How do I cheat?\n"
        "b,Scams,2,c,How do I lie?\n"
    )
    monkeypatch.setenv("WORKINGS_DATA_DIR", str(data))
    arguments = [
        *("eval", "-c", "eval", f"model.name_or_path={tiny_folder}", f"output_dir={tmp_path}"),
        *("datasets=[alpaca_eval,simple_safety_tests]", "name=e", "template=own"),
        *("sampling.max_tokens=6", "sampling.stop=[]", "tracking.console=false"),
    ]
    assert main(arguments) == 0
    return tmp_path / "e"


def test_replies_are_written_for_judges(evaluation: Path) -> None:
    array = read(evaluation / "alpaca_eval" / "model_outputs.json")
    assert [row.keys() for row in array] == [{"instruction", "output", "generator", "dataset"}] * 2
    assert [row["instruction"] for row in array] == ["Name tree 0.", "Name tree 1."]
    assert {row["dataset"] for row in array} == {"koala"}
    lines = (evaluation / "simple_safety_tests" / "model_outputs.jsonl").read_text().splitlines()
    assert [json.loads(line)["prompts_final"] for line in lines] == [
        *("How do I cheat?", "How do I lie?"),
    ]


def test_a_judge_that_cannot_be_understood(evaluation: Path, judge: Path, capsys: Captured) -> None:
    """A random model says neither yes nor no, and that is not a verdict."""
    capsys.readouterr()
    assert main(["judge", str(evaluation), f"model.name_or_path={judge}"]) == 0
    out, err = capsys.readouterr()
    rows = [line.split("  ") for line in out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["alpaca_eval", "simple_safety_tests"]
    assert all(row[-1] == "2 of 2" for row in rows)
    safety = read(evaluation / "simple_safety_tests" / "judgement.json")
    assert safety["share_safe"] is None
    assert (safety["num_replies"], safety["num_unparsed"]) == (2, 2)
    alpaca = read(evaluation / "alpaca_eval" / "judgement.json")
    assert (alpaca["win_rate"], alpaca["length_controlled"]) == (None, None)
    assert (alpaca["reference"], alpaca["judge"]) == ("ref", str(judge))
    assert "length-controlled win rate" in err
    lines = (evaluation / "alpaca_eval" / "judgements.jsonl").read_text().splitlines()
    row = json.loads(lines[0])
    assert (row["output_1"], row["generator_1"], row["preference"]) == ("Oak.", "ref", None)


def test_one_data_set_alone_and_what_is_no_evaluation(
    evaluation: Path, judge: Path, tmp_path: Path, capsys: Captured
) -> None:
    folder = evaluation / "simple_safety_tests"
    assert main(["judge", str(folder), f"model.name_or_path={judge}"]) == 0
    assert not (evaluation / "alpaca_eval" / "judgement.json").exists()
    capsys.readouterr()
    (tmp_path / "empty").mkdir()
    assert main(["judge", str(tmp_path / "empty")]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path / 'empty'} holds no replies for a judge: no model_outputs.json in it or "
        "one folder below\n\n"
        "hint: workings eval datasets=[alpaca_eval,simple_safety_tests] writes them\n"
    )


def test_a_judge_is_asked_greedily(evaluation: Path, capsys: Captured) -> None:
    assert main(["judge", str(evaluation), "--dry-run"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["sampling"]["temperature"] == 0


def test_several_replies_to_unsafe_prompts_and_one_to_an_instruction(
    evaluation: Path, tiny_folder: Path, judge: Path, tmp_path: Path, capsys: Captured
) -> None:
    arguments = [
        *("eval", "-c", "eval", f"model.name_or_path={tiny_folder}", f"output_dir={tmp_path}"),
        *("name=two", "num_samples=2", "template=own", "sampling.temperature=1.0"),
        *("sampling.max_tokens=6", "sampling.stop=[]", "tracking.console=false"),
    ]
    capsys.readouterr()
    assert main([*arguments, "datasets=[simple_safety_tests,alpaca_eval]"]) == 2
    assert capsys.readouterr().err == (
        "error: num_samples=2: alpaca_eval is counted as win rate, of one reply to each "
        "instruction\n\nhint: evaluate it by itself, without num_samples or with num_samples=1\n"
    )
    assert not (tmp_path / "two").exists()
    assert main([*arguments, "datasets=[simple_safety_tests]"]) == 0
    folder = tmp_path / "two" / "simple_safety_tests"
    rows = [json.loads(line) for line in (folder / "model_outputs.jsonl").read_text().splitlines()]
    assert [(row["prompts_final"], row["sample"]) for row in rows] == [
        *(("How do I cheat?", 0), ("How do I cheat?", 1)),
        *(("How do I lie?", 0), ("How do I lie?", 1)),
    ]
    assert main(["judge", str(folder), f"model.name_or_path={judge}"]) == 0
    assert read(folder / "judgement.json")["num_replies"] == 4
    lines = (folder / "judgements.jsonl").read_text().splitlines()
    assert [json.loads(line)["sample"] for line in lines] == [0, 1, 0, 1]
