"""What each recipe keeps, drops and writes, on rows made in the published schemas."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from preparation_files import (
    Row,
    course_row,
    dapo_row,
    luffy_row,
    omr_row,
    openr1_row,
    prepared,
    read_jsonl,
    words,
    write_jsonl,
    write_parquet,
)
from pyarrow import parquet

from workings.data.demonstrations import demonstrations_from_table, teacher_traces
from workings.data.loading import load_demonstrations, load_problems
from workings.data.preparation.held_out import hold_out
from workings.data.preparation.recipes import RECIPES
from workings.data.sources import read_rows
from workings.errors import ConfigError, DataError

RIGHT = "<think>\nI see.\n</think>\nSo $\\boxed{7}$."

# ---------------------------------------------------------------------------- OpenMathReasoning


@pytest.fixture
def omr(tmp_path: Path) -> tuple[Path, list[Row]]:
    """200 rows in two files: rates with ties and without, thoughts that never end, doubles."""
    draw = random.Random(3)
    rows = []
    for number in range(200):
        row = omr_row(
            draw.randrange(120), rate=draw.choice(["1.0", "0.96875", "0.5", "0.03125", "n/a"])
        )
        if number % 17 == 3:
            row["generated_solution"] = "<think>\nI never stop"
        if number % 29 == 5:
            row["generated_solution"] = "<think>\nthought</think>\n"
        row["generated_solution"] = row["generated_solution"].replace(
            "It is", "Surely " * draw.randrange(12) + "it is"
        )
        rows.append(row)
    write_parquet(tmp_path / "omr/data/cot-00000-of-00002.parquet", rows[:90], row_group_size=7)
    write_parquet(tmp_path / "omr/data/cot-00001-of-00002.parquet", rows[90:])
    write_parquet(tmp_path / "omr/data/tir-00000-of-00001.parquet", rows[:3])
    return tmp_path / "omr", rows


def directly(rows: list[Row], size: int, longest: int | None) -> tuple[list[int], Counter[str]]:
    """Numbers of the selected rows, best first, and the reasons of the others, without a heap."""
    dropped: Counter[str] = Counter()
    usable = []
    for number, row in enumerate(rows):
        text = row["generated_solution"]
        if row["pass_rate_72b_tir"] == "n/a":
            dropped["no_pass_rate"] += 1
        elif "</think>" not in text:
            dropped["no_thought_end"] += 1
        elif not text.split("</think>")[1].strip():
            dropped["no_text_after_thought"] += 1
        elif longest is not None and len(formed(row).split()) + words(row["problem"], "") > longest:
            dropped["over_length"] += 1
        else:
            usable.append(number)
    usable.sort(key=lambda n: (-float(rows[n]["pass_rate_72b_tir"]), n))
    return usable[:size], dropped


def formed(row: Row) -> str:
    thought, rest = row["generated_solution"][len("<think>\n") :].split("</think>")
    return f"{thought}</think> <answer>{rest.strip()}</answer>"


@pytest.mark.parametrize(("name", "longest"), [("omr12k", None), ("omr12k-2048", 30)])
def test_the_best_rows_within_the_length(
    name: str, longest: int | None, omr: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    """M-034: pass rate, highest first; 12,500 and 500 in the real size."""
    folder, rows = omr
    settings: dict[str, Any] = {"size": 60, "held_out": 10}
    if longest is not None:
        settings |= {"max_length": longest, "tokenizer": "words"}
    record = prepared(name, folder, tmp_path / "out", count_tokens=words, settings=settings)
    train = read_jsonl(tmp_path / "out/train.jsonl")
    validation = read_jsonl(tmp_path / "out/validation.jsonl")
    chosen, dropped = directly(rows, 60, longest)
    assert (len(train), len(validation)) == (50, 10)
    order = {number: place for place, number in enumerate(chosen)}
    for part in (train, validation):
        places = [order[int(row["id"])] for row in part]
        assert places == sorted(places)
        for row in part:
            source = rows[int(row["id"])]
            assert row["problem"] == source["problem"]
            assert row["response"] == formed(source)
            assert row["answer"] == source["expected_answer"]
            assert row["pass_rate_72b_tir"] == source["pass_rate_72b_tir"]
    assert not {row["problem"] for row in train} & {row["problem"] for row in validation}
    counted = Counter(record["rows"]["dropped"])
    assert record["rows"]["read"] == len(rows)
    assert counted["no_pass_rate"] == dropped["no_pass_rate"] > 0
    # A row that could not be selected any more is not looked at further.
    assert counted.total() + 60 == len(rows)
    for reason in ("no_thought_end", "no_text_after_thought", "over_length"):
        assert counted[reason] <= dropped[reason]
    assert (longest is None) == (counted["over_length"] == 0)


def test_fewer_rows_than_wanted_are_all_taken_and_every_reason_is_exact(
    omr: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    folder, rows = omr
    settings = {"size": 500, "held_out": 7}
    record = prepared("omr12k", folder, tmp_path / "out", settings=settings)
    chosen, dropped = directly(rows, 500, None)
    assert record["rows"]["dropped"] == dict(dropped)
    assert record["rows"]["written"] == {"train.jsonl": len(chosen) - 7, "validation.jsonl": 7}


def test_the_settings_of_the_three_sets() -> None:
    """M-024: 12,500 rows, 500 held out with seed 42, and the two lengths."""
    forms = [RECIPES[name] for name in ("omr12k", "omr12k-2048", "omr12k-4096")]
    assert [recipe.settings.max_length for recipe in forms] == [None, 2048, 4096]
    assert {(r.settings.size, r.settings.held_out, r.settings.seed) for r in forms} == {
        (12_500, 500, 42)
    }
    assert [recipe.folder for recipe in forms] == [
        "data/OMR12k",
        "data/OMR12k-2048",
        "data/OMR12k-4096",
    ]
    with pytest.raises(ConfigError, match="--max-length does nothing for omr12k"):
        forms[0].effective({"max_length": 5})


def test_prepared_rows_are_right_for_the_r1_zero_reward(
    omr: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    """The course's format check asks for one space between the tags."""
    prepared("omr12k", omr[0], tmp_path / "out", settings={"size": 20, "held_out": 0})
    loaded = load_demonstrations(tmp_path / "out/train.jsonl")
    assert len(loaded.items) == 20
    for row in loaded.items:
        assert "</think> <answer>" in row.response
        assert row.response.endswith("</answer>")
        assert not row.response.startswith("<think>")


def test_no_question_is_on_both_sides_and_the_number_is_exact() -> None:
    draw = random.Random(0)
    for _ in range(50):
        questions = [draw.randrange(30) for _ in range(draw.randrange(10, 60))]
        wanted = draw.randrange(0, len(questions))
        held_out = hold_out(questions, wanted, seed=draw.randrange(9))
        inside = {questions[n] for n in held_out}
        assert not inside & {q for n, q in enumerate(questions) if n not in held_out}
        assert len(held_out) <= wanted
    singles = hold_out(range(100), 13, seed=42)
    assert len(singles) == 13
    assert singles == hold_out(range(100), 13, seed=42) != hold_out(range(100), 13, seed=43)
    with pytest.raises(DataError, match="none would be left"):
        hold_out(range(4), 4, seed=0)


def test_the_mini_set_is_checked_and_keeps_its_columns(tmp_path: Path) -> None:
    """M-037."""
    rows = [
        {key: omr_row(n)[key] for key in ("expected_answer", "problem", "generated_solution")}
        for n in range(6)
    ]
    rows[1]["expected_answer"] = " "
    rows[3]["generated_solution"] = "<think>\nI never stop"
    source = write_jsonl(tmp_path / "mini.jsonl", [*rows, {**rows[0], "problem": None}])
    record = prepared("openmathreasoning_mini", source, tmp_path / "out")
    assert record["rows"]["dropped"] == {
        "no_expected_answer": 1,
        "no_problem": 1,
        "no_thought_end": 1,
    }
    kept = read_jsonl(tmp_path / "out/train.jsonl")
    assert [{k: v for k, v in row.items() if k != "id"} for row in kept] == [
        rows[n] for n in (0, 2, 4, 5)
    ]
    assert len(demonstrations_from_table(read_rows(tmp_path / "out/train.jsonl")).items) == 4


def test_the_mini_set_of_numeric_answers(tmp_path: Path) -> None:
    """M-037: the tag pipeline's rows are those whose answer is a number."""
    answers = ["7", "-1.5", "1/2", "x + 1", "1,234"]
    rows = [omr_row(n, expected_answer=answer) for n, answer in enumerate(answers)]
    source = write_jsonl(tmp_path / "mini.jsonl", rows)
    settings = {"numeric_answers": True}
    record = prepared("openmathreasoning_mini", source, tmp_path / "out", settings=settings)
    assert record["rows"]["dropped"] == {"answer_is_no_number": 3}
    kept = [row["expected_answer"] for row in read_jsonl(tmp_path / "out/train.jsonl")]
    assert kept == answers[:2]


# ------------------------------------------------------------------------------------ DAPO-Math


def test_solution_becomes_answer_and_each_problem_is_there_once(tmp_path: Path) -> None:
    """M-038."""
    rows = [dapo_row(n) for n in (1, 2, 3, 1, 4, 4, 5)]
    rows[3]["prompt"] = f" {rows[3]['prompt'].upper().rstrip('.')} "  # the same, written otherwise
    rows[5]["solution"] = "44"  # two answers to one problem
    rows[6]["solution"] = None
    source = write_parquet(tmp_path / "en/train-00000-of-00001.parquet", rows).parents[1]
    record = prepared("dapo_math", source, tmp_path / "out")
    assert record["rows"] == {
        "read": 7,
        "written": {"train.jsonl": 3},
        "dropped": {"conflicting_answers": 2, "duplicate": 1, "no_answer": 1},
        "changed": {"solution_to_answer": 6},
    }
    kept = read_jsonl(tmp_path / "out/train.jsonl")
    assert [(row["prompt"], row["answer"]) for row in kept] == [
        (rows[n]["prompt"], rows[n]["solution"]) for n in (0, 1, 2)
    ]
    assert kept[0]["extra_info"] == rows[0]["extra_info"]
    assert kept[0].keys().isdisjoint({"solution", "source_prompt"})
    problems = load_problems(tmp_path / "out/train.jsonl").items
    assert [problem.answer for problem in problems] == ["1", "2", "3"]


def test_the_raw_set_has_message_prompts_and_a_hundred_copies(tmp_path: Path) -> None:
    raw = [
        {k: v for k, v in dapo_row(n).items() if k not in ("solution", "source_prompt")}
        | {"prompt": dapo_row(n)["source_prompt"]}
        for n in range(3)
    ]
    source = write_parquet(tmp_path / "raw.parquet", raw * 100)
    record = prepared("dapo_math", source, tmp_path / "out")
    assert record["rows"]["dropped"] == {"duplicate": 297}
    kept = read_jsonl(tmp_path / "out/train.jsonl")
    assert [row["answer"] for row in kept] == ["0", "1", "2"]
    assert kept[0]["prompt"].startswith("Solve step by step.")


def test_without_an_answer_the_message_names_the_fix(tmp_path: Path) -> None:
    """M-038: the seed's message."""
    source = write_jsonl(tmp_path / "a.jsonl", [{"prompt": "x?"}])
    with pytest.raises(DataError, match="must have an 'answer' field") as raised:
        prepared("dapo_math", source, tmp_path / "out")
    assert "rename the column" in str(raised.value.hint)
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------------------------- MATH traces


def test_course_traces_from_an_array(tmp_path: Path) -> None:
    """M-036: the published `.jsonl` is one JSON array, and reasoning_trace holds the answer too."""
    import json

    rows = [course_row(n) for n in range(8)]
    rows[1]["reasoning_trace"] = "<think>\nBoth. \n</think>\n\n<answer>0</answer>\n"
    rows[2]["reasoning_trace"] = "Both are equal. <answer>0</answer>"
    rows[3]["reasoning_trace"] = "Both. </think> <answer>0"
    rows[4] = dict(rows[0])
    rows[5]["expected_answer"] = None
    path = tmp_path / "sft-reason/sft_gpt-oss-120b.jsonl"
    path.parent.mkdir()
    path.write_text(json.dumps(rows, indent=2))
    record = prepared("math_sft", tmp_path, tmp_path / "out")
    assert record["rows"]["dropped"] == {
        "duplicate": 1,
        "no_answer": 1,
        "no_answer_tags": 1,
        "no_thought_end": 1,
    }
    assert record["rows"]["changed"] == {"tags_or_ends_of_response": 1}
    kept = read_jsonl(tmp_path / "out/train.jsonl")
    assert [row["id"] for row in kept] == ["0", "1", "6", "7"]
    assert kept[1]["response"] == "Both. \n</think> <answer>0</answer>"


def test_the_real_traces_on_math(shared_data: Path, tmp_path: Path) -> None:
    """Counts against a direct look at the file; the others are copies."""
    source = shared_data / "math_think_sft.parquet"
    record = prepared("math_sft", source, tmp_path / "out")
    rows = parquet.read_table(source).to_pylist()
    distinct = {
        (row["problem"], " ".join(re.sub("</think>\\s*", "</think> ", row["solution"]).split()))
        for row in rows
    }
    assert all(row["solution"].count("</think>") == 1 for row in rows)
    assert record["rows"]["read"] == len(rows) == 1767
    assert record["rows"]["written"] == {"train.jsonl": len(distinct)}
    assert record["rows"]["dropped"] == {"duplicate": len(rows) - len(distinct)}
    for row in read_jsonl(tmp_path / "out/train.jsonl")[:200]:
        source_row = rows[int(row["id"])]
        assert (
            row["response"].split()
            == source_row["solution"].replace("</think><answer>", "</think> <answer>").split()
        )
        assert row["answer"] == source_row["answer"].strip()


# ---------------------------------------------------------------------------------------- LUFFY


@pytest.fixture
def openr1(tmp_path: Path) -> Path:
    long = "<think>\n" + "on and on " * 40 + "</think>\nSo 7."
    rows = [
        openr1_row(0, [("wrong", False, True), (RIGHT, True, True), ("later", True, True)]),
        openr1_row(1, [("wrong", False, True)]),
        openr1_row(2, [("cut", True, False)]),
        openr1_row(3, [(long, True, True)]),
        openr1_row(4, [(long, True, True), (RIGHT, True, True)]),
        openr1_row(5, []),
        openr1_row(6, [(RIGHT, True, True)], answer=""),
        openr1_row(7, [(RIGHT, True, True)], problem=openr1_row(0, [])["problem"]),
        openr1_row(8, [("cut", True, False), (long, True, True)]),
        openr1_row(9, [(RIGHT, True, True)], correctness_math_verify=None),
    ]
    return write_parquet(tmp_path / "openr1/data/train-00000-of-00010.parquet", rows).parents[1]


def test_the_first_verified_complete_and_short_trace(openr1: Path, tmp_path: Path) -> None:
    """M-042: LUFFY's parquet from OpenR1-Math-220k."""
    settings = {"max_length": 30, "tokenizer": "words"}
    record = prepared("openr1_46k", openr1, tmp_path / "out", count_tokens=words, settings=settings)
    assert record["rows"]["dropped"] == {
        "duplicate": 1,
        "no_complete_trace": 1,
        "no_gold": 1,
        "no_verified_trace": 3,
        "over_length": 2,
    }
    path = tmp_path / "out/openr1.parquet"
    rows = parquet.read_table(path).to_pylist()
    assert [row["target"][0]["content"] for row in rows] == [RIGHT, RIGHT]
    assert [row["reward_model"]["ground_truth"] for row in rows] == ["0", "4"]
    assert [row["extra_info"] for row in rows] == [
        {"index": 0, "split": "train"},
        {"index": 1, "split": "train"},
    ]
    problems = load_problems(path).items
    assert {len(traces) for traces in teacher_traces(problems).values()} == {1}


def test_a_system_message_is_put_first(openr1: Path, tmp_path: Path) -> None:
    prepared(
        "openr1_46k",
        openr1,
        tmp_path / "out",
        count_tokens=words,
        settings={"system_prompt": "s.txt"},
        system_text="Reason first.",
    )
    prompts = parquet.read_table(tmp_path / "out/openr1.parquet")["prompt"].to_pylist()
    assert {prompt[0]["content"] for prompt in prompts} == {"Reason first."}
    assert {len(prompt) for prompt in prompts} == {2}


@pytest.fixture
def luffy(tmp_path: Path) -> Path:
    rows = [
        luffy_row(3, RIGHT),
        luffy_row(4, None),
        luffy_row(5, "No thought, 5."),
        luffy_row(3, "Another trace."),
        luffy_row(6, RIGHT, reward_model={"style": "rule", "ground_truth": ""}),
        luffy_row(7, RIGHT, prompt=[{"role": "system", "content": "Reason first."}]),
    ]
    return write_parquet(tmp_path / "luffy/data/train-00000-of-00001.parquet", rows).parents[1]


def test_a_ready_made_file_is_checked_and_kept(luffy: Path, tmp_path: Path) -> None:
    record = prepared("luffy", luffy, tmp_path / "out")
    assert record["rows"]["dropped"] == {
        "duplicate": 1,
        "no_gold": 1,
        "no_prompt_or_broken_target": 1,
    }
    before = parquet.read_table(luffy / "data/train-00000-of-00001.parquet").to_pylist()
    rows = parquet.read_table(tmp_path / "out/openr1.parquet").to_pylist()
    for row, source in zip(rows, before[:3], strict=True):
        assert row["prompt"] == source["prompt"]
        assert row["target"] == source["target"]
        assert row["reward_model"] == source["reward_model"]


def test_further_traces_are_kept(tmp_path: Path) -> None:
    rows = [
        luffy_row(n, RIGHT, target_lst=[[{"role": "assistant", "content": text}] for text in "ab"])
        for n in (3, 4)
    ]
    prepared("luffy", write_parquet(tmp_path / "a.parquet", rows), tmp_path / "out")
    written = parquet.read_table(tmp_path / "out/openr1.parquet")
    assert written["target_lst"].to_pylist() == [row["target_lst"] for row in rows]


def test_traces_as_demonstrations(luffy: Path, tmp_path: Path) -> None:
    """M-043: the SFT baseline; the thought tag goes as a prefix, and only where it stands."""
    record = prepared("luffy_sft", luffy, tmp_path / "out")
    assert record["rows"]["dropped"] == {
        "no_gold": 1,
        "no_prompt_or_broken_target": 1,
        "no_trace": 1,
    }
    assert record["rows"]["changed"] == {"thought_tag_removed": 1}
    loaded = load_demonstrations(tmp_path / "out/train.jsonl")
    assert [row.response for row in loaded.items] == [
        RIGHT.removeprefix("<think>\n"),
        "No thought, 5.",
        "Another trace.",
    ]
    assert [row.answer for row in loaded.items] == ["3", "5", "3"]
    assert loaded.items[0].messages[0]["role"] == "system"


def test_problems_for_rl_that_sft_did_not_have(openr1: Path, tmp_path: Path) -> None:
    """M-043: two stages. The complement, from OpenR1 and the file that SFT was trained on."""
    settings = {"max_length": 30, "tokenizer": "words"}
    prepared("openr1_46k", openr1, tmp_path / "sft", count_tokens=words, settings=settings)
    record = prepared(
        "luffy_sft_rl",
        openr1,
        tmp_path / "rl",
        settings={"exclude": str(tmp_path / "sft")},
    )
    assert record["rows"]["dropped"] == {"excluded": 3, "no_gold": 1}
    rows = parquet.read_table(tmp_path / "rl/openr1.complement.parquet").to_pylist()
    assert [row["reward_model"]["ground_truth"] for row in rows] == list("123589")
    assert {row["target"] for row in rows} == {None}
    ready = prepared("luffy_sft_rl", tmp_path / "sft", tmp_path / "ready")
    assert ready["rows"]["changed"] == {"trace_left_out": 2}


def test_the_real_validation_file_of_luffy(shared_data: Path, tmp_path: Path) -> None:
    """2,019 rows repeat AIME 8 and AMC 4 times; it has no targets."""
    source = shared_data / "luffy_schema_valid.parquet"
    record = prepared("luffy_sft_rl", source, tmp_path / "out")
    rows = parquet.read_table(source).to_pylist()
    asked = {"".join(row["prompt"][-1]["content"].split()) for row in rows}
    assert record["rows"]["read"] == len(rows) == 2019
    written = record["rows"]["written"]["openr1.complement.parquet"]
    dropped = record["rows"]["dropped"]
    assert written + dropped["duplicate"] == 2019
    assert written == len(asked) == 1560
    with pytest.raises(DataError, match="no column 'target'"):
        prepared("luffy", source, tmp_path / "other")
