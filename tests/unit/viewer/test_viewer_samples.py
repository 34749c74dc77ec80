"""Groups of samples, and the problems that two files share."""

from __future__ import annotations

from pathlib import Path

from viewer_files import results_row, write_jsonl, write_rollouts

from workings.viewer.rows import open_rows, read_rows
from workings.viewer.samples import badges_of, samples_table, shared_problems, summary_of


def test_a_group_with_rewards_and_advantages(tmp_path: Path) -> None:
    file = open_rows(write_rollouts(tmp_path / "a.parquet", [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0]]))
    rows = read_rows(file, range(6))
    html = samples_table(rows[:4])
    assert html.count("<tr>") == 5
    assert all(text in html for text in ("+0.75", "-0.25", "different", "length", "format"))
    assert summary_of(rows[:4]) == "4 samples, 1 right, mean reward 0.25"
    assert summary_of(rows[4:]) == "2 samples, 2 right, mean reward 1 (all equal: no advantage)"
    badges = "".join(badges_of(rows[1]))
    expected = ("reward 0", "advantage -0.25", "3 tokens", "truncated", ">10<", "different")
    assert all(text in badges for text in expected)


def test_a_row_of_an_earlier_program(tmp_path: Path) -> None:
    row = {"prompt": "q", "response": "r", "ground_truth": 4, "metrics": {"reward": 1.0}}
    file = open_rows(write_jsonl(tmp_path / "results.jsonl", [row]))
    (found,) = read_rows(file, [0])
    assert found["answer"] == "4"
    assert badges_of(found)
    assert "<td" in samples_table([found])


def test_shared_problems_and_who_does_better(tmp_path: Path) -> None:
    def write(name: str, kinds: dict[str, list[str]]):
        rows = [
            results_row(problem, sample, kind=kind)
            for problem, row in kinds.items()
            for sample, kind in enumerate(row)
        ]
        return open_rows(write_jsonl(tmp_path / name / "results.jsonl", rows))

    first = write("a", {"p": ["11", "11"], "q": ["10"], "r": ["11"], "only a": ["11"]})
    second = write("b", {"r": ["11"], "q": ["11"], "p": ["11", "00"]})

    def names(outcome: str) -> list[str]:
        return [one.problem for one in shared_problems(first, second, outcome=outcome)]

    assert names("all") == ["p", "q", "r"]
    assert names("first") == ["p"]
    assert names("second") == ["q"]
    assert names("differ") == ["p", "q"]
    assert shared_problems(first, second, outcome="first")[0].second == 0.5
