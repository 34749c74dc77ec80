"""Files of `workings eval-luffy` and whole-run files of earlier programs open like any other."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from viewer_files import results_row, write_jsonl

from workings.errors import DataError
from workings.evaluation.artefact import artefact, artefact_folder, write_artefact
from workings.evaluation.flat import decoded_rows, flat_rows, write_rows
from workings.tracking.rollouts import write_groups
from workings.types import Grade, Problem, Prompt, Rollout, RolloutGroup, Verdict
from workings.viewer.discovery import discover
from workings.viewer.facets import ANSWER_CLASSES, choices_of, kind_of, read_facets
from workings.viewer.files import list_result_files, load_result_file
from workings.viewer.filters import Filters, select
from workings.viewer.rows import matching_rows, open_rows, read_rows
from workings.viewer.samples import badges_of, shared_problems, summary_of

SOURCES = ("amc", "aime", "math")
TIME = datetime(2025, 6, 1, 12, 30, 5)


def _groups(*, samples: int = 2) -> list[RolloutGroup]:
    """Nine problems of three sources; problem n is right in sample 0 where n is even."""
    return [
        RolloutGroup(
            prompt=Prompt(
                problem=Problem(
                    id=f"p/{n}",
                    question=f"{n}+1",
                    answer=str(n + 1),
                    source=SOURCES[n % 3],
                    subject="sums",
                ),
                ids=(1, 2),
                text=f"What is {n}+1?",
            ),
            rollouts=tuple(_rollout(n, sample) for sample in range(samples)),
        )
        for n in range(9)
    ]


def _rollout(n: int, sample: int) -> Rollout:
    right = n % 2 == 0 and sample == 0
    length = 2 + n
    return Rollout(
        ids=(5,) * length,
        sampling_logprobs=(-0.5,) * length,
        kept_mass=(1.0,) * length,
        mask=(True,) * length,
        off_policy=(False,) * length,
        text=f"It is {n + right}.",
        finish_reason="length" if n == 8 else "stop",
        weight_version=0,
        reward=float(right),
        components={"format": 1.0, "answer": float(right)},
        grade=Grade(
            verdict=Verdict.EQUAL if right else Verdict.DIFFERENT, tier="string", extracted="1"
        ),
    )


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """The results file of `eval-luffy`, with what lies beside it."""
    groups = _groups()
    correct = [[rollout.reward == 1.0 for rollout in group.rollouts] for group in groups]
    path = tmp_path / "results/luffy.jsonl"
    write_rows(path.with_name("luffy.decoded.jsonl"), decoded_rows(groups))
    write_rows(path, flat_rows(groups, [*correct[:-1], [None, False]]))
    path.with_name("luffy.log").write_text("2026-01-01 00:00:00 a table\n")
    write_groups(tmp_path / "results/luffy.responses/luffy/responses.parquet", groups)
    return path


@pytest.fixture
def whole_run(tmp_path: Path) -> Path:
    """A whole-run file on three data sets."""
    content = artefact(
        {
            name: [one for one in _groups() if one.problem.source == name]
            for name in sorted(SOURCES)
        },
        model="base",
        template="r1_zero",
        sampling={},
        timestamp=TIME,
    )
    folder = artefact_folder(tmp_path, run="grpo", step=100)
    return write_artefact(folder, content, run="grpo", step=100, timestamp=TIME)


def test_they_are_found_with_names_that_say_what_they_are(
    flat: Path, whole_run: Path, tmp_path: Path
) -> None:
    write_jsonl(tmp_path / "results/running.decoded.jsonl", [{"generated_text": "x"}])
    write_jsonl(tmp_path / "data/train.jsonl", [{"question": "no response"}])
    write_jsonl(tmp_path / "run/metrics.jsonl", [{"step": 1}])
    (tmp_path / "run/metrics.log").write_text("")
    (tmp_path / "sweep.json").write_text("{}")
    labels = {one.name: one.label for one in discover(tmp_path).responses}
    assert labels == {
        "results/luffy.jsonl": "results · luffy",
        "results/running.decoded.jsonl": "results · running · not graded",
        "eval_runs/grpo/step_100/grpo_step_100_eval_20250601_123005.json": (
            "eval_runs/grpo · step 100 · 2025-06-01 12:30:05"
        ),
    }
    assert set(list_result_files(tmp_path)) == labels.keys()


def test_a_flat_file_is_filtered_by_source_class_and_length(flat: Path) -> None:
    file = open_rows(flat)
    choices = choices_of(file)
    assert choices.sources == sorted(SOURCES)
    assert choices.kinds == ANSWER_CLASSES
    of_amc = [0, 1, 6, 7, 12, 13]
    assert list(select(file, Filters(sources=("amc",)))) == of_amc
    assert len(select(file, Filters(sources=("amc", "math")))) == 12
    assert list(select(file, Filters(kinds=("1",)))) == [0, 4, 8, 12]
    assert list(select(file, Filters(sources=("amc",), kinds=("1",)))) == [0, 12]
    assert list(select(file, Filters(min_length=9))) == [14, 15, 16, 17]
    assert list(select(file, Filters(truncated=True))) == [16, 17]
    assert matching_rows(file, "IT IS 4").tolist() == [
        row["completion"].startswith("It is 4") for row in read_rows(file, range(18))
    ]


def test_rows_of_a_flat_file_say_source_length_and_whether_they_are_right(flat: Path) -> None:
    file = open_rows(flat)
    rows = read_rows(file, range(file.num_rows), tokens=True)
    assert (rows[0]["prompt"], rows[0]["answer"]) == ("What is 0+1?", "1")
    assert [row["source"] for row in rows[::2]] == [*SOURCES] * 3
    assert [row["num_tokens"] for row in rows] == [2 + n for n in range(9) for _ in range(2)]
    assert rows[4]["ids"] == [5] * 4
    assert [kind_of(row) for row in rows] == read_facets(file).kind.tolist()
    badges = "".join(badges_of(rows[0], source=True))
    assert all(text in badges for text in (">right<", ">amc<", ">2 tokens<"))
    assert summary_of(rows[:2]) == "2 samples, 1 right"
    assert kind_of(rows[16]) == ""  # an unusable gold


def test_a_flat_file_of_another_program_has_only_four_fields(tmp_path: Path) -> None:
    names = ("prompt", "generated_text", "answer", "correctness")
    rows = [dict(zip(names, ("Q", "A", "4", mark), strict=True)) for mark in (1, 0, 1)]
    file = open_rows(write_jsonl(tmp_path / "base.jsonl", rows))
    (tmp_path / "base.log").write_text("")
    assert list_result_files(tmp_path) == ["base.jsonl"]
    assert list(select(file, Filters(kinds=("1",)))) == [0, 2]
    assert choices_of(file).sources == []


def test_a_whole_run_is_filtered_searched_and_compared(whole_run: Path, flat: Path) -> None:
    file = open_rows(whole_run)
    assert file.num_rows == 18
    assert choices_of(file).sources == sorted(SOURCES)
    assert list(select(file, Filters(sources=("amc",), kinds=("11",)))) == [6, 10]
    assert [kind_of(row) for row in read_rows(file, range(18))] == read_facets(file).kind.tolist()
    row = read_rows(file, [6])[0]
    assert (row["problem_id"], row["sample"], row["source"]) == ("amc/p/0", 0, "amc")
    assert row["completion"] == "It is 1."
    assert matching_rows(file, "it is 1.").sum() == 3
    assert len(shared_problems(file, file, outcome="all")) == 9
    found = load_result_file(whole_run.parent, whole_run.name, offset=17, limit=5)
    assert [one["source"] for one in found] == ["math"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object with metadata and results"),
        ('{"metadata": {}, "results": [{"id": 1}]}', "without 'question'"),
    ],
)
def test_a_damaged_whole_run_says_so(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "x_eval_20250601_123005.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        open_rows(path)


def test_results_get_their_source_from_the_responses_beside_them(tmp_path: Path) -> None:
    rows = [results_row(f"p/{n}") for n in (3, 4, 5, 99)]
    path = write_jsonl(tmp_path / "all/results.jsonl", rows)
    assert choices_of(open_rows(path)).sources == []
    write_groups(path.with_name("responses.parquet"), _groups())
    path.write_text(path.read_text() + json.dumps(results_row("p/6")) + "\n")
    file = open_rows(path)
    assert choices_of(file).sources == sorted(SOURCES)
    assert list(select(file, Filters(sources=("amc",)))) == [0, 4]
    assert [row["source"] for row in read_rows(file, [1, 3])] == ["aime", None]


def test_one_source_is_none(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "all/results.jsonl", [results_row("p/0")])
    write_groups(path.with_name("responses.parquet"), _groups()[::3])
    assert read_rows(open_rows(path), [0])[0]["source"] is None


def test_responses_behind_a_link_are_left_alone(tmp_path: Path, flat: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (flat.parent / "luffy.responses").rename(elsewhere)
    (flat.parent / "luffy.responses").symlink_to(elsewhere)
    assert read_rows(open_rows(flat), [0])[0]["num_tokens"] is None
