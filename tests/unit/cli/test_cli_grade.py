"""`workings grade FILE`: verdicts in a file, counts on stdout, and what each bad input is told."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from grade_files import NONE, RIGHT, ROWS, VERDICTS, WRONG, records, verdicts, write_rows

from workings.cli.commands import grade as command
from workings.cli.grade.tally import MOST_NAMES
from workings.cli.main import main
from workings.evaluation.intervals import mean_interval, wilson_interval
from workings.tracking.rollouts import write_groups
from workings.types import Grade, Problem, Prompt, Rollout, RolloutGroup, Verdict

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "responses.jsonl")


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def _grade(*arguments: str | Path) -> int:
    return main(["grade", *map(str, arguments), "--workers", "1"])


def _summary(file: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(
        file.with_name("responses.graded.summary.json").read_text()
    )
    return summary


# ------------------------------------------------------------------------------------ files


def test_every_row_has_its_verdict_in_order(file: Path, capsys: Captured) -> None:
    assert _grade(file) == 0
    graded = records(file.with_name("responses.graded.jsonl"))
    assert [record["verdict"] for record in graded] == VERDICTS
    assert [record["correct"] for record in graded] == [True, False, False, True]
    assert [record["extracted"] for record in graded] == ["5", "6", None, "7"]
    assert [(record["index"], record["line"], record["sample"]) for record in graded] == [
        (n, n + 1, 0) for n in range(4)
    ]
    assert graded[1]["tier"] == "number"
    assert graded[1]["milliseconds"] >= 0
    assert graded[1]["kept"] == {"id": "b", "kind": "sums"}
    assert set(graded[0]) == {
        *("index", "line", "sample", "verdict", "correct", "tier", "gold", "extracted", "reason"),
        *("milliseconds", "kept"),
    }
    assert sorted(path.name for path in file.parent.iterdir()) == [
        *("responses.graded.jsonl", "responses.graded.summary.json", "responses.jsonl"),
    ]
    out, err = capsys.readouterr()
    assert f"note: {file}: responses from 'response', golds from 'answer', by 'kind'; rows" in err
    assert "note: 4 graded in " in err
    assert "\x1b" not in out + err


def test_what_is_printed(file: Path, capsys: Captured) -> None:
    assert _grade(file) == 0
    lines = capsys.readouterr().out.splitlines()
    low, high = wilson_interval(2, 4)
    shown = f"50.0 % [{100 * low:.1f}, {100 * high:.1f}]"
    assert lines[:7] == [
        "",
        f"accuracy {shown}: 2 of 4; policy boxed",
        "",
        "verdict    responses   share  meaning",
        "equal              2  50.0 %  agreement was proved",
        "different          1  25.0 %  disagreement was proved",
        "no_answer          1  25.0 %  the response gives no answer",
    ]
    assert lines[8].split() == [
        *("tier", "responses", "equal", "different", "other", "mean", "ms", "99", "%", "worst")
    ]
    start = next(n for n, line in enumerate(lines) if line.startswith("kind"))
    assert [line.split("  ")[-1].strip() for line in lines[start:]] == [
        "not equal",
        "no_answer 1",
        "different 1",
    ]
    assert max(map(len, lines)) <= 80


def test_the_summary_file(file: Path) -> None:
    assert _grade(file) == 0
    summary = _summary(file)
    low, high = wilson_interval(2, 4)
    shares = {"value": 0.5, "low": low, "high": high, "interval": "wilson"}
    assert summary["accuracy"] == {"correct": 2, "of": 4, "problems": 4, **shares}
    assert summary["verdicts"] == {"equal": 2, "different": 1, "no_answer": 1}
    assert summary["by"]["kind"]["sums"]["verdicts"] == {"equal": 1, "different": 1}
    assert (summary["rows"], summary["responses"]) == (4, 4)
    assert summary["settings"]["policy"]["extraction"] == "boxed"
    assert summary["settings"]["columns"]["response"] == "response"
    assert sum(tier["responses"] for tier in summary["tiers"].values()) == 4


@pytest.mark.parametrize("suffix", [".json", ".parquet", ".csv", ".ndjson"])
def test_other_kinds_of_files(tmp_path: Path, suffix: str) -> None:
    file = write_rows(tmp_path / f"responses{suffix}")
    assert _grade(file) == 0
    assert verdicts(tmp_path / "responses.graded.jsonl") == VERDICTS


def test_several_responses_to_a_row(tmp_path: Path, capsys: Captured) -> None:
    rows = [
        {"answer": "5", "responses": [RIGHT, RIGHT, WRONG]},
        {"answer": "5", "responses": [NONE]},
        {"answer": "6", "responses": [RIGHT, WRONG]},
    ]
    file = write_rows(tmp_path / "responses.jsonl", rows)
    assert _grade(file) == 0
    graded = records(tmp_path / "responses.graded.jsonl")
    assert [(record["index"], record["sample"]) for record in graded] == [
        *((0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)),
    ]
    accuracy = _summary(file)["accuracy"]
    means = [2 / 3, 0.0, 0.5]
    assert accuracy["value"] == pytest.approx(sum(means) / 3, abs=1e-12)
    assert (accuracy["low"], accuracy["high"]) == mean_interval(means)
    assert (accuracy["correct"], accuracy["of"], accuracy["problems"]) == (3, 6, 3)
    assert "3 of 6 responses to 3 problems, mean and interval" in capsys.readouterr().out


def test_rows_of_one_problem_wherever_they_stand(tmp_path: Path) -> None:
    rows = [
        {"id": name, "answer": "5", "response": text}
        for name, text in (("a", RIGHT), ("b", WRONG), ("a", RIGHT), ("b", RIGHT), ("a", RIGHT))
    ]
    file = write_rows(tmp_path / "responses.jsonl", rows)
    assert _grade(file) == 0
    accuracy = _summary(file)["accuracy"]
    assert (accuracy["problems"], accuracy["value"]) == (2, 0.75)
    assert accuracy["interval"] == "effective"


def test_the_rollouts_of_a_run(tmp_path: Path) -> None:
    texts = [RIGHT, WRONG]
    rollouts = tuple(
        Rollout(
            ids=(1, 2),
            sampling_logprobs=(0.0, 0.0),
            kept_mass=(1.0, 1.0),
            mask=(True, True),
            off_policy=(False, False),
            text=text,
            finish_reason="stop",
            weight_version=0,
            grade=Grade(verdict=Verdict.UNDECIDED),
        )
        for text in texts
    )
    problem = Problem(id="p", question="2+3", answer="5", subject="sums", source="s")
    group = RolloutGroup(prompt=Prompt(problem=problem, ids=(1,), text="2+3"), rollouts=rollouts)
    write_groups(tmp_path / "responses.parquet", [group])
    assert _grade(tmp_path / "responses.parquet", "--keep", "verdict", "--keep", "components") == 0
    graded = records(tmp_path / "responses.graded.jsonl")
    assert [record["verdict"] for record in graded] == ["equal", "different"]
    kept = {"problem_id": "p", "subject": "sums", "verdict": "undecided", "components": []}
    assert graded[0]["kept"] == kept


def test_the_results_of_an_evaluation(tmp_path: Path) -> None:
    rows = [
        {"prompt": "?", "ground_truth": "5", "response": text, "id": "m/1", "subject": None}
        for text in (RIGHT, WRONG)
    ]
    file = write_rows(tmp_path / "responses.jsonl", rows)
    assert _grade(file) == 0
    assert verdicts(tmp_path / "responses.graded.jsonl") == ["equal", "different"]
    assert _summary(file)["by"] == {}


def test_what_a_run_stored(grpo_run: Path, tmp_path: Path) -> None:
    """Its rollouts, and the responses and results of its own evaluations."""
    rollouts = grpo_run / "rollouts" / "step_000002.parquet"
    (responses,) = sorted(grpo_run.glob("eval/step_000002/*/responses.parquet"))
    results = responses.with_name("results.jsonl")
    for file, count in ((rollouts, 16), (responses, 16), (results, 16)):
        assert _grade(file, "--policy", "tag", "--out", tmp_path) == 0
        graded = records(tmp_path / f"{file.stem}.graded.jsonl")
        assert len(graded) == count
        assert all(record["verdict"] for record in graded)
        summary = json.loads((tmp_path / f"{file.stem}.graded.summary.json").read_text())
        assert summary["accuracy"]["problems"] < count


def test_a_column_of_many_values_is_cut_to_the_frequent_ones(
    tmp_path: Path, capsys: Captured
) -> None:
    rows = [{"kind": f"k{n // 2}", "answer": "5", "response": RIGHT} for n in range(451)]
    file = write_rows(tmp_path / "responses.jsonl", rows)
    assert _grade(file) == 0
    summary = _summary(file)
    assert len(summary["by"]["kind"]) == MOST_NAMES == 200
    assert "k225" not in summary["by"]["kind"]
    assert summary["values"] == {"kind": 226}
    assert "and 176 more " in capsys.readouterr().out


def test_named_columns(tmp_path: Path) -> None:
    rows = [{"out": {"text": ["5", "6"]}, "meta": {"gold": 5.0, "level": 3}}]
    file = write_rows(tmp_path / "responses.jsonl", rows)
    arguments = ["--response", "out.text", "--gold", "meta.gold", "--by", "meta.level", "--bare"]
    assert _grade(file, *arguments) == 0
    graded = records(tmp_path / "responses.graded.jsonl")
    assert [(record["verdict"], record["gold"]) for record in graded] == [
        *(("equal", "5"), ("different", "5")),
    ]
    assert list(_summary(file)["by"]["meta.level"]) == ["3"]


def test_policies(tmp_path: Path) -> None:
    rows = [{"answer": "5", "response": text} for text in ("<answer>5</answer>", "answer is 5")]
    file = write_rows(tmp_path / "responses.jsonl", rows)
    found = []
    for policy in ("boxed", "tag", "lenient"):
        assert _grade(file, "--policy", policy, "--fresh") == 0
        found.append(verdicts(tmp_path / "responses.graded.jsonl"))
    assert found == [["no_answer"] * 2, ["equal", "no_answer"], ["equal", "equal"]]


def test_no_breakdown(file: Path, capsys: Captured) -> None:
    assert _grade(file, "--by", "none") == 0
    assert "kind" not in capsys.readouterr().out


def test_several_files_into_a_folder(file: Path, capsys: Captured) -> None:
    other = write_rows(file.with_name("other.jsonl"), ROWS[:1])
    folder = file.parent / "verdicts"
    assert _grade(file, other, "--out", folder) == 0
    assert verdicts(folder / "responses.graded.jsonl") == VERDICTS
    assert verdicts(folder / "other.graded.jsonl") == VERDICTS[:1]
    out = capsys.readouterr().out
    assert f"\n{file}\naccuracy" in out.replace(os.linesep, "\n")
    assert f"\n{other}\naccuracy 100.0 %" in out


# ------------------------------------------------------------------------- standard streams


def _stdin(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    stream = io.TextIOWrapper(io.BytesIO(file.read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)


def test_from_stdin_to_stdout(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    _stdin(monkeypatch, file)
    assert _grade("-") == 0
    out, err = capsysbinary.readouterr()
    assert [json.loads(line)["verdict"] for line in out.splitlines()] == VERDICTS
    assert b"accuracy 50.0 %" in err


def test_from_stdin_to_a_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = file.with_name("verdicts.jsonl")
    for _ in range(2):
        _stdin(monkeypatch, file)
        assert _grade("-", "--out", output, "--fresh") == 0
        assert verdicts(output) == VERDICTS
    assert output.with_name("verdicts.summary.json").is_file()


def test_the_summary_as_json(file: Path, capsys: Captured) -> None:
    assert _grade(file, "--json") == 0
    assert json.loads(capsys.readouterr().out) == _summary(file)


# ----------------------------------------------------------------------------------- labels


def test_labels_show_where_the_grader_is_wrong(tmp_path: Path, capsys: Captured) -> None:
    labelled = [(RIGHT, True), (RIGHT, False), (WRONG, True), (WRONG, False), (NONE, None)]
    rows: list[dict[str, Any]] = [
        {"id": f"n{n}", "gold": "5", "response": text, "expected": label}
        for n, (text, label) in enumerate(labelled)
    ]
    rows.append({"gold": "5", "response": WRONG, "expected": True, "debatable": True})
    file = write_rows(tmp_path / "responses.jsonl", rows)
    assert _grade(file, "--expected", "expected") == 0
    out = capsys.readouterr().out
    assert "expected  graded equal  graded otherwise\n" in out
    assert (
        "true                 1                 1\nfalse                1                 1" in out
    )
    assert "of 4 labels; 1 debatable not counted; 1 unlabelled not counted" in " ".join(out.split())
    assert (
        "false positives: called equal, labelled false (1)\n  line 2: n1 | gold 5 | read 5" in out
    )
    assert "false negatives: not called equal, labelled true (1)\n  line 3: n2 | gold 5" in out
    expected = _summary(file)["expected"]
    counts = [expected[name] for name in ("labelled", "debatable", "unlabelled")]
    assert counts == [4, 1, 1]
    assert expected["agreement"]["value"] == 0.5
    assert (expected["agreement"]["low"], expected["agreement"]["high"]) == wilson_interval(2, 4)


def test_only_so_many_rows_are_listed_also_of_a_finished_file(
    tmp_path: Path, capsys: Captured
) -> None:
    rows = [{"gold": "5", "response": RIGHT, "label": "false"} for _ in range(13)]
    file = write_rows(tmp_path / "responses.jsonl", rows)
    assert _grade(file, "--expected", "label") == 0
    out = capsys.readouterr().out
    assert "line 10:" in out
    assert "line 11:" not in out
    assert "and 3 more; --show 13 lists them" in out
    assert _grade(file, "--expected", "label", "--show", "13") == 0
    captured = capsys.readouterr()
    assert "line 13:" in captured.out
    assert "was finished before with these settings; kept" in captured.err


def test_a_case_file_may_spell_a_response_in_parts(tmp_path: Path) -> None:
    parts = [["so ", 3], [r"\boxed{5}", 1]]
    rows = [
        {"gold": "5", "response": None, "response_parts": parts},
        {"gold": "5", "response": WRONG, "response_parts": None},
        {"gold": "5", "response": None, "response_parts": ["x"]},
    ]
    file = write_rows(tmp_path / "responses.jsonl", rows)
    assert _grade(file) == 2
    graded = records(tmp_path / "responses.graded.jsonl")
    assert [record["verdict"] for record in graded] == ["equal", "different", None]
    assert graded[2]["reason"].startswith("'response_parts' is no list of [text, count]")


# ------------------------------------------------------------------------------- bad golds


def test_bad_golds_are_left_out_and_listed(tmp_path: Path, capsys: Captured) -> None:
    golds = ["5", "", None, ["1", "2"], "x = {", "#### 5"]
    rows: list[dict[str, Any]] = [{"answer": gold, "response": RIGHT} for gold in golds]
    rows.append({"response": RIGHT})
    file = write_rows(tmp_path / "responses.jsonl", rows)
    assert _grade(file) == 0
    graded = records(tmp_path / "responses.graded.jsonl")
    assert [record["verdict"] for record in graded] == [
        *("equal", "bad_gold", "bad_gold", "bad_gold", "bad_gold", "equal", "bad_gold"),
    ]
    assert graded[3]["reason"] == "the gold is a list of 2 and not one text or number"
    assert graded[6]["reason"] == "there is no 'answer'"
    assert all(record["reason"] for record in graded)
    out = " ".join(capsys.readouterr().out.split())
    assert "2 of 2; policy boxed; 5 left out" in out
    assert "bad golds (5) line 2: the gold is empty" in out
    assert _grade(file, "--strict") == 1


def test_strict_is_about_faults_and_not_about_wrong_answers(file: Path) -> None:
    assert _grade(file, "--strict") == 0


# -------------------------------------------------------------------------------- bad input


def test_bad_rows_are_named_and_the_others_graded(tmp_path: Path, capsys: Captured) -> None:
    good = {"answer": "5", "response": RIGHT}
    rows: list[object] = [good, '{"answer": "5", ', "[1]", "", {"answer": "5"}]
    rows += [{"answer": "5", "response": value} for value in (None, [], {"a": 1}, [RIGHT, True])]
    file = write_rows(tmp_path / "responses.jsonl", [*rows, good])
    assert _grade(file) == 2
    graded = records(tmp_path / "responses.graded.jsonl")
    assert [record["verdict"] for record in graded] == ["equal", *[None] * 7, "equal"]
    assert [record["index"] for record in graded] == list(range(9))
    out, err = capsys.readouterr()
    assert err.endswith(
        f"error: {file}: 7 of 9 rows cannot be graded\n"
        "  line 2: not JSON: Expecting property name enclosed in double quotes at column 16\n"
        "  line 3: a list; expected a JSON object\n"
        "  line 5: there is no 'response'\n"
        "  line 6: 'response' is null; expected text\n"
        "  line 7: 'response' is an empty list\n"
        "  line 8: 'response' is of type dict; expected text\n"
        "  line 9: 'response', sample 1 is of type bool; expected text\n"
        "\n"
        "hint: all other rows are graded; these stand in the output without a verdict\n"
    )
    assert "bad_row 7 77.8 % the row cannot be graded" in " ".join(out.split())


def test_of_many_bad_rows_all_are_counted_and_ten_shown(tmp_path: Path, capsys: Captured) -> None:
    rows: list[object] = [ROWS[0], *["{"] * 25]
    file = write_rows(tmp_path / "responses.jsonl", rows)
    for _ in range(2):  # the second time from the finished file
        assert _grade(file) == 2
        err = capsys.readouterr().err
        assert "25 of 26 rows cannot be graded" in err
        assert "  line 11: " in err
        assert "  line 12: " not in err
        assert "  and 15 more\n" in err


def test_bad_labels(tmp_path: Path, capsys: Captured) -> None:
    rows = [
        {"gold": "5", "response": RIGHT, "ok": "maybe"},
        {"gold": "5", "response": [RIGHT, RIGHT], "ok": [1]},
        {"gold": "5", "response": [RIGHT, RIGHT], "ok": [1, 0]},
    ]
    assert _grade(write_rows(tmp_path / "r.jsonl", rows), "--expected", "ok") == 2
    err = capsys.readouterr().err
    assert "line 1: the label 'ok' is 'maybe'; expected true or false" in err
    assert "line 2: 'ok' holds 1 labels for 2 responses" in err


@pytest.mark.parametrize(
    ("rows", "arguments", "message"),
    [
        (
            [{"x": "5", "response": "5"}],
            [],
            "has no column of a usual name for the gold; found: x, response; known: answer, gold",
        ),
        ([{"answer": "5"}], [], "has no column of a usual name for the response; found: answer"),
        (ROWS, ["--gold", "answr"], "--gold: unknown column 'answr'; did you mean 'answer'?"),
        (ROWS, ["--response", "a.b"], "--response: unknown column 'a.b'"),
        (ROWS, ["--by", "level"], "--by: unknown column 'level'"),
        (ROWS, ["--keep", "level"], "--keep: unknown column 'level'"),
        (ROWS, ["--expected", "label"], "--expected: unknown column 'label'"),
        ([], [], "r.jsonl has no rows"),
        (["{", "["], [], "none of its first 2 rows can be read; line 1: not JSON"),
        (ROWS, ["--policy", "box"], "unknown extraction policy 'box'; did you mean 'boxed'?"),
        (ROWS, ["--bare", "--policy", "tag"], "so --policy tag is unused"),
        (ROWS, ["--deadline", "0"], "deadline_seconds=0.0; expected more than 0"),
    ],
)
def test_what_cannot_be_graded_at_all(
    tmp_path: Path, capsys: Captured, rows: list[object], arguments: list[str], message: str
) -> None:
    file = write_rows(tmp_path / "r.jsonl", rows)
    assert _grade(file, *arguments) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [file]


def test_files_that_do_not_go_together(file: Path, capsys: Captured) -> None:
    twin = write_rows(file.with_suffix(".json"))
    for arguments, message in (
        ([], "no file to grade\n\nhint: name files, - for standard input, or --explain"),
        ([file, file], f"{file} is given twice"),
        ([file, "-"], "standard input is graded by itself"),
        ([file, twin, "--out", "-"], "--out - takes the verdicts of one file"),
        ([file, twin], "two of the files would write"),
        ([file, "--out", file], "is the file that is graded"),
        ([file.with_name("gone.jsonl")], "gone.jsonl cannot be read: No such file"),
        ([file.with_name("r.txt")], "r.txt is not a kind of file that can be read"),
        ([file.parent], f"{file.parent} is a folder\n\nhint: name files"),
    ):
        assert _grade(*arguments) == 2
        assert message in capsys.readouterr().err


def test_a_folder_says_which_files_are_in_it(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "gsm8k").mkdir()
    write_rows(tmp_path / "gsm8k" / "responses.parquet")
    assert _grade(tmp_path) == 2
    inside = tmp_path / "gsm8k" / "responses.parquet"
    assert f"hint: name files in it, such as {inside}" in capsys.readouterr().err


def test_a_full_disk_is_told(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workings.cli.grade.output.GradedFile.write", fail)
    assert _grade(file) == 2
    err = capsys.readouterr().err
    assert "responses.graded.jsonl cannot be written: No space left on device" in err
    assert "the same command goes on from there" in err


def test_text_of_models_cannot_command_the_terminal(tmp_path: Path, capsys: Captured) -> None:
    evil = "\x1b]0;title\x07\x9b2J"
    rows = [{"kind": evil, "gold": "5", "response": rf"\boxed{{6{evil}}}", "expected": True}]
    rows.append({"kind": "x", "gold": "{" + evil, "response": RIGHT, "expected": True})
    file = write_rows(tmp_path / "responses.jsonl", rows)
    assert _grade(file, "--expected", "expected") == 0
    assert _grade(file, "--expected", "expected", "--out", "-") == 0
    out, err = capsys.readouterr()
    assert set(out + err) & {"\x1b", "\x07", "\x9b"} == set()
    assert "\\x1b]0;title\\x07\\x9b2J" in out
    graded = records(tmp_path / "responses.graded.jsonl")
    assert graded[0]["extracted"] == f"6{evil}"
    assert graded[0]["kept"] == {"kind": evil}


def test_halves_of_emoji_are_graded_and_written(tmp_path: Path) -> None:
    file = tmp_path / "responses.jsonl"
    file.write_text('{"answer": "5", "response": "\\ud83d \\\\boxed{5\\ud83d}"}\n')
    assert _grade(file) == 0
    assert records(tmp_path / "responses.graded.jsonl")[0]["extracted"] == "5\ud83d"


# ------------------------------------------------------------------------------------ start


def test_workers_by_default() -> None:
    assert 1 <= command.default_workers() <= command.MOST_WORKERS


def test_torch_is_not_imported(file: Path) -> None:
    code = (
        "import sys; from workings.cli.main import main; "
        "code = main(sys.argv[1:]); sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "grade", str(file)], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
