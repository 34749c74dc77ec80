"""`workings compare`: what it finds, what it prints, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from workings.cli.main import main

Captured = pytest.CaptureFixture[str]


def _evaluation(
    folder: Path,
    right: Sequence[int],
    *,
    total: int = 20,
    dataset: str = "sums",
    mode: str = "strict",
) -> Path:
    target = folder / dataset
    target.mkdir(parents=True)
    rows = [
        {"id": f"{dataset}/{number}", "sample": 0, "correct": number in right}
        for number in range(total)
    ]
    (target / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = {
        "total_examples": total,
        "aggregate_metrics": {},
        "settings": {"grader": {"mode": mode}},
    }
    (target / "summary.json").write_text(json.dumps(summary))
    return folder


def _training(folder: Path, reward: float) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"step": step, "kind": "train", "time": 0.0, "train/reward": reward + step / 100}
        for step in (1, 2)
    ]
    accuracy = {"eval/accuracy": 0.5, "eval/accuracy_low": 0.4, "eval/accuracy_high": 0.6}
    rows.append({"step": 2, "kind": "eval", "time": 0.0, **accuracy})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def _run(*arguments: object) -> int:
    return main(["compare", *map(str, arguments)])


def test_two_evaluations(tmp_path: Path, capsys: Captured) -> None:
    before = _evaluation(tmp_path / "before", range(5))
    after = _evaluation(tmp_path / "after", range(1, 18))
    assert _run(before, after) == 0
    printed = capsys.readouterr()
    title, _, header, _, row = printed.out.splitlines()[:5]
    assert title == "after against before"
    assert header.split() == [
        *("data", "set", "problems", "before", "after", "difference", "better", "worse", "p"),
    ]
    assert " ".join(row.split()) == (
        "sums 20 25.0 % [11.2, 46.9] 85.0 % [64.0, 94.8] +60.0 [+26.8, +79.5] 13 1 0.001 "
        "clearly better"
    )
    assert "Clear: the interval leaves zero out." in printed.out
    assert printed.err == ""


def test_several_evaluations_are_corrected_for_their_number(
    tmp_path: Path, capsys: Captured
) -> None:
    folders = [
        _evaluation(tmp_path / name, right)
        for name, right in (("base", range(5)), ("little", range(10)), ("same", range(5)))
    ]
    assert _run(*folders) == 0
    out = capsys.readouterr().out
    assert "little against base" in out
    assert "same against base" in out
    assert "p is corrected for 2 comparisons (Holm)" in out
    rows = [" ".join(line.split()) for line in out.splitlines() if line.startswith("sums")]
    assert rows[0].endswith("5 0 0.051 not clear")
    assert rows[1].endswith("+0.0 [-16.1, +16.1] 0 0 1.000 not clear")


def test_json(tmp_path: Path, capsys: Captured) -> None:
    folders = [_evaluation(tmp_path / name, range(n)) for name, n in (("a", 3), ("b", 19))]
    assert _run(*folders, "--json") == 0
    content = json.loads(capsys.readouterr().out)
    (one,) = content["comparisons"]
    assert (one["reference"], one["other"], one["finding"]) == ("a", "b", "better")
    assert one["difference"]["difference"] == pytest.approx(16 / 20)
    assert one["reference_accuracy"]["interval"] == "wilson"
    assert content["final_metrics"] == {}


def test_pooled_seeds(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(3):
        _evaluation(Path(f"sft-{seed}"), range(5 + seed))
        _evaluation(Path(f"grpo-{seed}"), range(15 - seed))
    assert _run("--pool", "sft-*", "grpo-0,grpo-1,grpo-2") == 0
    out = capsys.readouterr().out
    assert out.startswith("grpo-0,grpo-1,grpo-2 against sft-*\n")
    assert "sums, sft-*: 3 pooled by problem, 25.0 %, 30.0 %, 35.0 %" in out
    assert "30.0 %" in out
    assert _run("--pool", "sft-*", "nothing-*") == 2
    assert "error: no folder nothing-*" in capsys.readouterr().err
    assert _run("--pool", "sft-0,sft-0", "grpo-*") == 2
    assert "twice" in capsys.readouterr().err


def test_training_runs_show_their_final_metrics_and_are_paired(
    tmp_path: Path, capsys: Captured
) -> None:
    runs = [_training(tmp_path / name, reward) for name, reward in (("a", 0.1), ("b", 0.2))]
    assert _run(*runs) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["last", "recorded", "(step)", "a", "b"]
    assert lines[2].split() == ["train/reward", "0.12", "(2)", "0.22", "(2)"]
    assert " ".join(lines[3].split()) == (
        "eval/accuracy 50.0 % [40.0, 60.0] (2) 50.0 % [40.0, 60.0] (2)"
    )
    for run, solved in zip(runs, (5, 18), strict=True):
        _evaluation(run / "eval" / "step_000001", range(3), dataset="validation")
        _evaluation(run / "eval" / "step_000002", range(solved), dataset="validation")
    assert _run(*runs, "--metric", "reward") == 0
    printed = capsys.readouterr()
    assert "eval/accuracy" not in printed.out
    assert "b against a" in printed.out
    assert "clearly better" in printed.out
    assert "its last evaluation is taken, of step 2" in printed.err
    assert _run(*runs, "--step", "1") == 0
    assert "clearly" not in capsys.readouterr().out


def test_settings_that_differ_are_named(tmp_path: Path, capsys: Captured) -> None:
    strict = _evaluation(tmp_path / "a", range(3))
    lenient = _evaluation(tmp_path / "b", range(9), mode="four_class")
    assert _run(strict, lenient) == 0
    assert "other settings: grader.mode strict and four_class" in capsys.readouterr().err


def test_data_sets_of_one_side_are_named(tmp_path: Path, capsys: Captured) -> None:
    first = _evaluation(tmp_path / "a", range(3))
    second = _evaluation(tmp_path / "b", range(3))
    _evaluation(tmp_path / "b", range(3), dataset="words")
    assert _run(first, second) == 0
    assert "words is left out: only b has it" in capsys.readouterr().err
    assert _run(first, second, "--dataset", "words") == 2
    assert "words was not evaluated by a" in capsys.readouterr().err
    assert _run(first, second, "--dataset", "sum") == 2
    assert "unknown data set 'sum'; did you mean 'sums'?" in capsys.readouterr().err
    third = _evaluation(tmp_path / "c", range(3), dataset="other")
    assert _run(first, third) == 2
    assert "no data set was evaluated by all (a: sums; c: other)" in capsys.readouterr().err


def test_problems_of_one_side_are_an_error(tmp_path: Path, capsys: Captured) -> None:
    full = _evaluation(tmp_path / "full", range(3))
    short = _evaluation(tmp_path / "short", range(3), total=18)
    assert _run(full, short) == 2
    assert (
        "sums: the two evaluations answered other problems: 2 ('sums/18', 'sums/19') only in full; "
        "18 in both"
    ) in capsys.readouterr().err


def _asked(folder: Path, golds: Sequence[object], *, data: str) -> Path:
    """An evaluation on a file of one's own, whose problems are numbered by row."""
    (folder / "sums").mkdir(parents=True)
    rows = [
        {"id": f"sums/{number}", "sample": 0, "correct": True, "ground_truth": gold}
        for number, gold in enumerate(golds)
    ]
    (folder / "sums" / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {"data": {"path": data, "name": "sums"}}
    summary = {"total_examples": len(rows), "aggregate_metrics": {}, "settings": settings}
    (folder / "sums" / "summary.json").write_text(json.dumps(summary))
    return folder


def test_other_problems_under_the_same_ids_are_an_error(tmp_path: Path, capsys: Captured) -> None:
    golds = [str(number) for number in range(8)]
    first = _asked(tmp_path / "first", golds, data="a.jsonl")
    second = _asked(tmp_path / "second", [*golds[:2], *golds[:1:-1]], data="b.jsonl")
    assert _run(first, second) == 2
    assert capsys.readouterr().err == (
        "error: sums: the two evaluations asked other problems under the same ids: 6 of 8 have "
        "another gold answer ('sums/2': '2' in first, '7' in second, 'sums/3': '3' in first, '6' "
        "in second, 'sums/4': '4' in first, '5' in second, 'sums/5': '5' in first, '4' in second, "
        "'sums/6': '6' in first, '3' in second and 1 more); they read data.path 'a.jsonl' and "
        "'b.jsonl'\n\nhint: evaluate both on the same file of problems\n"
    )
    third = _asked(tmp_path / "third", ["9" * 99, *golds[1:]], data="a.jsonl")
    assert _run(first, third) == 2
    told = capsys.readouterr().err
    assert f"1 of 8 have another gold answer ('sums/0': '0' in first, '{'9' * 37}...'" in told
    assert "both read data.path 'a.jsonl', which has changed between them" in told
    assert _run("--pool", f"{first},{second}", third) == 2
    assert f"sums: {first},{second} cannot be pooled: the two eval" in capsys.readouterr().err
    copy = _asked(tmp_path / "copy", list(range(8)), data="copy.jsonl")
    assert _run(first, copy) == 0


def _flat(file: Path, right: Mapping[str, int]) -> Path:
    """A flat results file: ten problems of each data source, numbered from 0, in turn."""
    rows = [
        {
            "prompt": f"{number}?",
            "generated_text": "",
            "answer": f"{source} {number}",
            "correctness": number < solved,
            "id": str(number),
            "data_source": source,
        }
        for number in range(10)
        for source, solved in right.items()
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def _whole_run(file: Path, right: Mapping[str, int]) -> Path:
    """The same evaluation as one JSON file."""
    rows = [
        {
            "id": str(number),
            "subject": None,
            "level": None,
            "question": f"{number}?",
            "ground_truth": f"{name} {number}",
            "r1_format_extracted": None,
            "correct": number < solved,
            "rewards": {},
            "full_response": "",
            "dataset": name,
        }
        for name, solved in right.items()
        for number in range(10)
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"metadata": {}, "results": rows}))
    return file


def test_a_file_of_several_data_sets_has_a_row_for_each(tmp_path: Path, capsys: Captured) -> None:
    before = _flat(tmp_path / "before.jsonl", {"aime": 1, "math": 5})
    after = _flat(tmp_path / "after.jsonl", {"aime": 1, "math": 9})
    whole = _whole_run(tmp_path / "eval_runs/e/step_0/e.json", {"math": 9, "aime": 1})
    for other in (after, whole):
        assert _run(before, other) == 0
        lines = capsys.readouterr().out.splitlines()
        rows = [" ".join(line.split()) for line in lines if line.startswith(("aime", "math"))]
        assert rows[0].startswith("aime 10 10.0 % [1.8, 40.4] 10.0 % [1.8, 40.4] +0.0 ")
        assert rows[1].startswith("math 10 50.0 % [23.7, 76.3] 90.0 % [59.6, 98.2] +40.0 ")
        assert len(rows) == 2
    assert _run(before, after, "--dataset", "math", "--json") == 0
    (one,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert (one["dataset"], one["difference"]["num_better"]) == ("math", 4)


def test_files_of_one_data_set_are_called_by_it(tmp_path: Path, capsys: Captured) -> None:
    """And not by their folders, which are those of two steps."""
    first = _whole_run(tmp_path / "eval_runs/e/step_0/e.json", {"math": 5})
    last = _whole_run(tmp_path / "eval_runs/e/step_100/e.json", {"math": 9, "aime": 2})
    assert _run(first, last) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[4].split()[:2] == ["math", "10"]
    assert "aime is left out: only " in printed.err
    folder = _asked(tmp_path / "r" / "e", ["1"], data="math")
    (folder / "sums").rename(folder / "math")
    rows = [
        {"id": str(number), "sample": 0, "correct": False, "ground_truth": f"math {number}"}
        for number in range(10)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "math" / "results.jsonl").write_text(text)
    assert _run(folder, last) == 0
    assert capsys.readouterr().out.splitlines()[4].split()[:2] == ["math", "10"]


def test_what_cannot_be_compared(tmp_path: Path, capsys: Captured) -> None:
    one = _evaluation(tmp_path / "one", range(3))
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, message in (
        ([one], "one folder has nothing to be compared with"),
        ([one, one], "is given twice"),
        ([one, tmp_path / "absent"], "no folder"),
        ([one, empty], "empty: no evaluation results there"),
        ([one, empty, "--metric", "reward"], "--metric needs runs with metrics"),
    ):
        assert _run(*arguments) == 2
        assert message in capsys.readouterr().err
