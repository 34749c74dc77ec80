"""Benchmarks by name: each file of the folder of data sets against a direct reading of it."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import pytest
from pyarrow import parquet

from workings.config.dataset import DatasetConfig
from workings.config.datasets import benchmark_names
from workings.config.mmlu import STEM_SUBJECTS, SUBJECTS
from workings.config.sources import shipped_folder
from workings.data.benchmarks import (
    benchmark_config,
    copy_of,
    load_benchmark,
    problem_arguments,
    row_arguments,
    shipped_benchmarks,
)
from workings.data.choices import LABELS
from workings.data.loading import load_problems
from workings.errors import ConfigError, DataError
from workings.grading.grader import Grader

Row = dict[str, Any]
IN_FORM = "\n\nAnswer with the letter of the right choice, in the form ANSWER: X."
FREE = {
    "aime24": ("aime24", 30),
    "aime25": ("aime25", 30),
    "aime_1983_2023": ("aime_1983_2023", 975),
    "amc": ("amc_2022_23_83", 83),
    "amc23": ("amc23", 40),
    "asdiv": ("asdiv", 2214),
    "cmath": ("cmath", 600),
    "college_math": ("college_math", 2818),
    "gaokao2023en": ("gaokao2023en", 383),
    "gsm8k": ("gsm8k_test", 1319),
    "math500": ("math500", 500),
    "mawps": ("mawps", 2065),
    "minerva_math": ("minerva_math", 272),
    "olympiadbench": ("olympiadbench", 675),
    "svamp": ("svamp", 1000),
}
UNUSABLE = {"asdiv": "-", "gaokao2023en": ""}
CHOICES = {
    "aqua": ("aqua", 254),
    "sat_math": ("sat_math", 32),
    "mmlu_math": ("mmlu_math", 1190),
    "mmlu_stem": ("mmlu_stem", 3018),
}


@pytest.fixture(scope="module")
def check_gold() -> Any:
    """The grader's own check, which needs no worker."""
    with Grader() as grader:
        yield grader.check_gold


def read(shared_data: Path, name: str) -> list[Row]:
    rows: list[Row] = parquet.read_table(shared_data / f"{name}.parquet").to_pylist()
    return rows


# ---------------------------------------------------------------------------------- free answers


@pytest.mark.parametrize("name", FREE)
def test_a_benchmark_with_free_answers(
    name: str, shared_data: Path, check_gold: Callable[[str], str | None]
) -> None:
    file, count = FREE[name]
    rows = [row for row in read(shared_data, file) if row["answer"] != UNUSABLE.get(name)]
    loaded = load_benchmark(name, check_gold=check_gold, data_dir=shared_data)
    assert len(loaded.items) == len(rows) == count
    assert loaded.notes == ()
    assert [p.question for p in loaded.items] == [row["problem"] for row in rows]
    assert [p.answer for p in loaded.items] == [row["answer"].strip() for row in rows]
    for role in ("subject", "level"):
        expected = [row[role] if row.get(role) else None for row in rows]
        assert [getattr(p, role) for p in loaded.items] == expected
    assert len({p.id for p in loaded.items}) == count
    assert all(p.id.startswith(f"{name}/") for p in loaded.items)
    assert not any(LABELS in p.extra for p in loaded.items)


def test_golds_that_cannot_be_used_are_dropped_and_counted(shared_data: Path) -> None:
    """They are two empty texts and a dash."""
    for name, number in (("asdiv", 1), ("gaokao2023en", 2)):
        with Grader() as grader:
            loaded = load_benchmark(name, check_gold=grader.check_gold, data_dir=shared_data)
        assert loaded.dropped == {"bad_gold": number}


def test_the_math_test_set_is_two_files(shared_data: Path) -> None:
    rows = read(shared_data, "math500") + read(shared_data, "math_test_minus500")
    loaded = load_benchmark("math", data_dir=shared_data)
    assert len(loaded.items) == len(rows) == 5000
    assert [p.question for p in loaded.items] == [row["problem"] for row in rows]
    assert [p.answer for p in loaded.items] == [row["answer"].strip() for row in rows]
    assert Counter(p.subject for p in loaded.items) == Counter(row["subject"] for row in rows)
    assert len({p.id for p in loaded.items}) == 5000
    assert loaded.items[0].id == "math/math500/test/precalculus/807.json"
    assert loaded.items[-1].id == "math/math_test_minus500/4499"


def test_the_part_for_sweeps_is_fixed(shared_data: Path) -> None:
    from datasets import Dataset

    rows = read(shared_data, "math500") + read(shared_data, "math_test_minus500")
    order = Dataset.from_dict({"row": list(range(5000))}).shuffle(seed=42)["row"][:1024]
    loaded = load_benchmark("math_1024", data_dir=shared_data)
    assert [p.question for p in loaded.items] == [rows[row]["problem"] for row in order]
    again = load_problems(
        **problem_arguments(benchmark_config("math_1024")), seed=9, data_dir=shared_data
    )
    assert again.items == loaded.items


def test_competition_math_is_the_first_of_a_published_shuffle(
    shared_data: Path, tmp_path: Path
) -> None:
    """On the hub's schema, made of MATH's own rows: whole solutions, "Level 3" and a type."""
    from datasets import Dataset

    rows = read(shared_data, "math_train") + read(shared_data, "math500")
    rows += read(shared_data, "math_test_minus500")
    names = ("problem", "level", "type", "solution")
    raw = [
        dict(
            zip(
                names,
                (r["problem"], f"Level {r['level']}", r["subject"], r["solution"]),
                strict=True,
            )
        )
        for r in rows
    ]
    (tmp_path / "competition_math.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in raw))
    loaded = load_benchmark("competition_math_5k", data_dir=tmp_path)
    order = Dataset.from_dict({"row": list(range(len(raw)))}).shuffle(seed=42)["row"][:]
    usable = [raw[row] for row in order if "boxed{}" not in raw[row]["solution"]]
    assert loaded.dropped["bad_gold"] == len(raw) - len(usable) == 2
    assert [p.question for p in loaded.items] == [row["problem"] for row in usable[:5000]]
    assert loaded.items[0].level == usable[0]["level"]
    for name, count in (("500", 500), ("1024", 1024)):
        config = benchmark_config(f"competition_math_{name}")
        assert (config.limit, config.problems, config.shuffle_seed) == (count, count, 42)


# --------------------------------------------------------------------------------------- choices


@pytest.mark.parametrize("name", CHOICES)
def test_a_benchmark_with_choices(name: str, shared_data: Path) -> None:
    file, count = CHOICES[name]
    rows = [row for row in read(shared_data, file) if row.get("level") in (None, "test")]
    loaded = load_benchmark(name, data_dir=shared_data, worded=False)
    assert len(loaded.items) == len(rows) == count
    for problem, row in zip(loaded.items, rows, strict=True):
        letters = str(problem.extra[LABELS])
        gold = row["answer"]
        assert problem.answer == (ascii_uppercase[int(gold)] if gold.isdigit() else gold)
        assert problem.answer in letters
        lines = problem.question[len(row["problem"].rstrip()) :].strip("\n").split("\n")
        assert problem.question.startswith(row["problem"].rstrip())
        assert [line[:3] for line in lines if line[:3] in {f"{a}) " for a in letters}] == [
            f"{letter}) " for letter in letters
        ]
        assert problem.subject == row.get("subject")


def test_rendered_choices(shared_data: Path) -> None:
    row = read(shared_data, "mmlu_stem")[0]
    options = json.loads(row["options"])
    problem = load_benchmark("mmlu_stem", data_dir=shared_data).items[0]
    assert problem.question == (
        "Here is a question about college biology that has one right choice. Say which in one "
        'sentence of the form\n"The correct answer is _", with the letter in the place of the '
        f"blank.\n\nQuestion: {row['problem']}\n"
        f"A) {options[0]}\nB) {options[1]}\nC) {options[2]}\nD) {options[3]}\nAnswer:"
    )
    assert problem.answer == "ABCD"[int(row["answer"])]
    row = read(shared_data, "aqua")[0]
    options = [option[2:] for option in json.loads(row["options"])]
    problem = load_benchmark("aqua", data_dir=shared_data).items[0]
    listed = "".join(f"\n{a}) {o}" for a, o in zip("ABCDE", options, strict=True))
    assert problem.question == row["problem"] + listed + IN_FORM
    assert problem.extra[LABELS] == "ABCDE"


def test_arc_as_luffy_validates_on_it(shared_data: Path) -> None:
    """Its choices stand in the text; 22 questions number theirs."""
    rows = read(shared_data, "luffy_valid_arc_c")
    loaded = load_benchmark("arc_c", data_dir=shared_data)
    assert len(loaded.items) == len(rows) == 1172
    assert [p.answer for p in loaded.items] == [row["answer"] for row in rows]
    assert loaded.items[0].question == rows[0]["problem"].rstrip() + IN_FORM
    labels = Counter(str(p.extra[LABELS]) for p in loaded.items)
    assert sum(labels.values()) - labels["ABCD"] - labels["ABC"] - labels["ABCDE"] == 22
    assert all(p.answer in str(p.extra[LABELS]) for p in loaded.items)


@pytest.mark.parametrize("subject", ["abstract_algebra", "machine_learning"])
def test_one_subject_of_mmlu(subject: str, shared_data: Path) -> None:
    rows = [row for row in read(shared_data, "mmlu_stem") if row["subject"] == subject]
    loaded = load_benchmark(f"mmlu_{subject}", data_dir=shared_data)
    assert len(loaded.items) == len(rows) == SUBJECTS[subject]
    assert loaded.notes == ()
    assert {p.subject for p in loaded.items} == {subject}
    assert loaded.items[0].id == f"mmlu_{subject}/0"


def test_the_subjects_of_mmlu(shared_data: Path) -> None:
    counts = Counter(row["subject"] for row in read(shared_data, "mmlu_stem"))
    assert {subject: SUBJECTS[subject] for subject in STEM_SUBJECTS} == counts
    assert (len(SUBJECTS), sum(SUBJECTS.values())) == (57, benchmark_config("mmlu").problems)


# ----------------------------------------------------------------------------------------- LUFFY


def test_avg_at_32_on_luffys_file_counts_1590_problems(shared_data: Path) -> None:
    rows = read(shared_data, "luffy_valid_all")
    loaded = load_benchmark("luffy_valid", data_dir=shared_data)
    assert benchmark_config("luffy_valid").num_samples == 32
    assert (loaded.total, len(loaded.items)) == (len(rows), 1590) == (6023, 1590)
    assert loaded.dropped == {"repeated": 6023 - 1590}
    assert loaded.notes == ()
    distinct = {(row["source"], row["problem"]): row["answer"].strip() for row in rows}
    found = {(p.source, p.question): p.answer for p in loaded.items}
    assert found.keys() == distinct.keys()
    for key, gold in distinct.items():
        one_formula = gold.count("$") == 2 and gold[0] == gold[-1] == "$"
        assert found[key] == (gold[1:-1].strip() if one_formula else gold)
    assert Counter(p.subject for p in loaded.items) == {
        "aime": 30,
        "aime25": 30,
        "amc": 83,
        "math": 500,
        "minerva": 272,
        "olympiad_bench": 675,
    }


def test_golds_of_luffys_file_are_graded_as_they_should(shared_data: Path) -> None:
    """AMC's "142.0" is 142, and 266 golds of OlympiadBench stand in dollar signs."""
    loaded = load_benchmark("luffy_valid", data_dir=shared_data)
    amc = next(p for p in loaded.items if p.source == "amc")
    assert amc.answer == "142.0"
    rows = read(shared_data, "luffy_valid_all")
    wrapped = [
        row["answer"]
        for row in rows
        if row["source"] == "olympiad_bench" and row["answer"].startswith("$")
    ]
    assert len(wrapped) == 266
    olympiad = [p.answer for p in loaded.items if p.source == "olympiad_bench"]
    assert not any(re.fullmatch(r"\$[^$]*\$", answer) for answer in olympiad)
    with Grader() as grader:
        (grade,) = grader.compare_batch(["142"], [amc.answer])
    assert grade.correct


def test_the_smaller_file_of_luffy(shared_data: Path) -> None:
    loaded = load_benchmark("luffy_valid_small", data_dir=shared_data)
    assert (loaded.total, len(loaded.items), loaded.notes) == (2019, 1560, ())
    assert loaded.items[0].messages[0]["role"] == "system"


# ------------------------------------------------------------------------------ without golds


def test_safety_prompts_have_no_gold(shared_data: Path) -> None:
    with (shared_data / "simple_safety_tests.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    config = benchmark_config("simple_safety_tests")
    loaded = load_benchmark("simple_safety_tests", data_dir=shared_data)
    assert config.is_judged
    assert len(loaded.items) == len(rows) == 100
    assert [p.question for p in loaded.items] == [row["prompts_final"] for row in rows]
    assert [p.subject for p in loaded.items] == [row["harm_area"] for row in rows]
    assert {p.answer for p in loaded.items} == {""}
    assert loaded.items[0].id == "simple_safety_tests/sst_001"


# ------------------------------------------------------------------------------ names and rules


def test_every_shipped_benchmark_has_a_rule_and_a_count() -> None:
    configs = shipped_benchmarks()
    assert [config.name for config in configs] == benchmark_names([shipped_folder()])
    for config in configs:
        if config.path != "arithmetic":
            assert config.problems
            assert config.counted
            assert config.local
    counted = {config.name: config.counted for config in configs}
    assert {name for name, rule in counted.items() if rule == "avg@32"} == {
        *("aime", "aime22", "aime23", "aime24", "aime25", "amc", "amc23", "luffy_valid"),
    }


def test_every_file_of_benchmarks_is_one(shared_data: Path) -> None:
    """What is left are training sets."""
    read_by_one = {
        file.name for config in shipped_benchmarks() for file in copy_of(config, shared_data) or ()
    }
    here = {file.name for file in shared_data.iterdir() if file.suffix in (".parquet", ".csv")}
    assert here - read_by_one == {
        *("gsm8k_train.parquet", "math_train.parquet", "math_lvl3to5_8k.parquet"),
        *("asdiv_2k_train.parquet", "limr_1389.parquet", "math_think_sft.parquet"),
    }


def test_without_a_copy_the_hub_is_asked_and_the_error_names_both(tmp_path: Path) -> None:
    (tmp_path / "college_math_draft.csv").write_text("a\n1\n")
    with pytest.raises(DataError) as caught:
        load_benchmark("college_math", data_dir=tmp_path)
    assert caught.value.message.startswith(f"{tmp_path}: unknown data set 'college_math'")
    assert caught.value.hint is not None
    assert caught.value.hint.endswith(
        "a local copy, college_math, may lie in the folder WORKINGS_DATA_DIR names"
    )


def test_another_number_of_problems_is_noted(tmp_path: Path) -> None:
    rows = [{"problem": f"{i}?", "answer": str(i)} for i in range(29)]
    (tmp_path / "aime24.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    loaded = load_benchmark("aime24", data_dir=tmp_path)
    file = tmp_path / "aime24.jsonl"
    assert loaded.notes == (f"{file} has 29 problems, and 30 are expected",)
    config = benchmark_config("aime24").model_copy(update={"limit": 5})
    assert load_problems(**problem_arguments(config), data_dir=tmp_path).notes == ()


def test_a_copy_may_be_a_folder_as_data_prepare_writes_it(tmp_path: Path) -> None:
    rows = [{"problem": f"{i}?", "answer": str(i)} for i in range(30)]
    file = tmp_path / "aime24" / "test.jsonl"
    file.parent.mkdir()
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    loaded = load_benchmark("aime24", data_dir=tmp_path)
    assert ([p.answer for p in loaded.items], loaded.notes) == ([str(i) for i in range(30)], ())


def test_settings_of_problems_have_no_effect_on_rows_to_imitate() -> None:
    assert "where" in row_arguments(DatasetConfig(path="x", note="n"))
    with pytest.raises(ConfigError, match=r"wording=.* is about problems"):
        row_arguments(DatasetConfig(path="x", wording="{question}!"))
