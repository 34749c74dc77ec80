"""Rollouts written to parquet and read back."""

from __future__ import annotations

import dataclasses
import doctest
import math
import random
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workings.errors import DataError
from workings.tracking import rollouts as module
from workings.tracking.rollouts import (
    prune_steps,
    read_groups,
    read_rows,
    rollouts_path,
    write_groups,
    write_rollouts,
)
from workings.types import Grade, Problem, Prompt, Rollout, RolloutGroup, Verdict


def float32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def random_group(seed: int, num_rollouts: int) -> RolloutGroup:
    draw = random.Random(seed)
    problem = Problem(
        id=f"made/{seed}",
        question="Wie groß ist π? 🧮\n\\frac{1}{2}",
        answer="3.14",
        messages=({"role": "user", "content": "Wie groß ist π? 🧮"},),
        subject="Geometry" if seed % 2 else None,
        level="Level 3" if seed % 2 else None,
        source="made",
        extra={"unique_id": seed, "tags": ["a", "b"], "nested": {"x": None, "y": 0.5}},
    )
    rollouts = []
    for index in range(num_rollouts):
        length = draw.randint(0, 9)
        rollouts.append(
            Rollout(
                ids=tuple(draw.randint(0, 150_000) for _ in range(length)),
                sampling_logprobs=tuple(float32(-draw.expovariate(1)) for _ in range(length)),
                kept_mass=tuple(draw.random() for _ in range(length)),
                mask=tuple(draw.random() < 0.5 for _ in range(length)),
                off_policy=tuple(draw.random() < 0.5 for _ in range(length)),
                text=f"answer {draw.random()}",
                finish_reason=draw.choice(["eos", "stop", "length"]),
                weight_version=draw.randint(0, 9),
                source="demonstration" if index == 1 else "policy",
                reward=None if index == 0 else draw.random(),
                components={"format": 1.0, "answer": draw.random()} if index else {},
                grade=Grade(verdict=Verdict.EQUAL, tier="number", extracted="3", milliseconds=0.25)
                if index
                else None,
            )
        )
    prompt = Prompt(problem=problem, ids=(1, 2, seed), text="Frage: ")
    return RolloutGroup(prompt=prompt, rollouts=tuple(rollouts))


def test_doctests() -> None:
    assert doctest.testmod(module).failed == 0


def test_groups_come_back_equal(tmp_path: Path) -> None:
    groups = [random_group(seed, 1 + seed % 4) for seed in range(12)]
    write_groups(tmp_path / "groups.parquet", groups)
    assert read_groups(tmp_path / "groups.parquet") == groups


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "groups.parquet"
    write_groups(path, [random_group(seed, 4) for seed in range(5)])
    whole = path.read_bytes()
    for content in (whole[:-9], whole[: len(whole) // 2], b"", whole[4:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"groups\.parquet cannot be read"):
            read_groups(path)


def test_a_table_of_something_else_is_no_file_of_rollouts(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(DataError, match=r"other\.parquet row 1 is no rollout: KeyError"):
        read_groups(path)
    with pytest.raises(DataError, match=r"other\.parquet cannot be read"):
        read_rows(path, columns=["advantage"])


def test_two_groups_of_one_prompt_stay_two(tmp_path: Path, make_group) -> None:
    groups = [make_group(), make_group()]
    write_groups(tmp_path / "groups.parquet", groups)
    assert read_groups(tmp_path / "groups.parquet") == groups


def test_a_logprob_that_was_not_sampled_stays_nan(tmp_path: Path, make_group) -> None:
    group = make_group(texts=["x"], rewards=[1.0])
    (rollout,) = group.rollouts
    changed = dataclasses.replace(rollout, sampling_logprobs=(-0.5, math.nan, -0.25))
    write_groups(tmp_path / "g.parquet", [dataclasses.replace(group, rollouts=(changed,))])
    (back,) = read_groups(tmp_path / "g.parquet")[0].rollouts
    assert back.sampling_logprobs[::2] == (-0.5, -0.25)
    assert math.isnan(back.sampling_logprobs[1])


def test_the_rows_say_what_a_reader_wants_to_know(tmp_path: Path, make_group) -> None:
    group = make_group(formats=[1.0, 1.0], verdicts=[Verdict.EQUAL, Verdict.DIFFERENT])
    path = write_rollouts(tmp_path / "rollouts", 12, [group], advantages=[[0.5, -0.5]])
    assert path == tmp_path / "rollouts" / "step_000012.parquet"
    assert not list(path.parent.glob("*.new"))
    first, second = read_rows(path)
    assert {name: first[name] for name in ("step", "group", "sample", "problem_id", "answer")} == {
        "step": 12,
        "group": 0,
        "sample": 0,
        "problem_id": "sums/1",
        "answer": "4",
    }
    assert (second["completion"], second["reward"], second["advantage"]) == (
        "<answer>5</answer>",
        0.0,
        -0.5,
    )
    assert second["components"] == {"format": 1.0, "answer": 0.0}
    assert (second["verdict"], second["num_tokens"], second["weight_version"]) == (
        "different",
        4,
        3,
    )


def test_chosen_columns_only(tmp_path: Path, make_group) -> None:
    path = write_rollouts(tmp_path, 1, [make_group()])
    assert read_rows(path, columns=["completion", "reward"]) == [
        {"completion": "<answer>4</answer>", "reward": 1.0},
        {"completion": "<answer>5</answer>", "reward": 0.0},
    ]


def test_no_groups_make_an_empty_file(tmp_path: Path) -> None:
    path = write_rollouts(tmp_path, 1, [])
    assert read_rows(path) == []
    assert read_groups(path) == []


def test_columns_of_other_types_do_not_stop_a_run(tmp_path: Path, make_group) -> None:
    group = make_group()
    extra = {"array": np.arange(3), "number": np.float32(0.5), "path": Path("a")}
    problem = dataclasses.replace(group.problem, extra=extra)
    prompt = dataclasses.replace(group.prompt, problem=problem)
    write_groups(tmp_path / "g.parquet", [dataclasses.replace(group, prompt=prompt)])
    back = read_groups(tmp_path / "g.parquet")[0].problem.extra
    assert back == {"array": [0, 1, 2], "number": 0.5, "path": "a"}


def test_missing_numbers_of_other_columns_are_null(tmp_path: Path, make_group) -> None:
    group = make_group()
    extra = {"level": float("nan"), "scores": [0.5, np.float32("inf")], "all": np.array([np.nan])}
    problem = dataclasses.replace(group.problem, extra=extra)
    prompt = dataclasses.replace(group.prompt, problem=problem)
    path = tmp_path / "g.parquet"
    write_groups(path, [dataclasses.replace(group, prompt=prompt)])
    assert read_rows(path)[0]["extra"] == '{"level": null, "scores": [0.5, null], "all": [null]}'
    expected = {"level": None, "scores": [0.5, None], "all": [None]}
    assert read_groups(path)[0].problem.extra == expected


def test_half_an_emoji_does_not_stop_a_run(tmp_path: Path, make_group) -> None:
    path = write_rollouts(tmp_path, 1, [make_group(texts=["\ud83e", "b"])])
    assert [row["completion"] for row in read_rows(path)] == ["?", "b"]


def test_advantages_of_another_shape_are_refused(tmp_path: Path, make_group) -> None:
    with pytest.raises(DataError) as caught:
        write_rollouts(tmp_path, 1, [make_group()], advantages=[[0.5]])
    assert str(caught.value) == (
        "advantages of shape [1] for groups of [2] rollouts; expected one advantage per rollout"
    )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no rollouts at .*step_000003\.parquet"):
        read_rows(rollouts_path(tmp_path, 3))


def test_pruning_takes_later_steps_and_nothing_else(tmp_path: Path) -> None:
    for name in ("step_000001.parquet", "step_000010.parquet", "notes.txt", "step_x.parquet"):
        (tmp_path / name).write_text("")
    (tmp_path / "step_11" / "sums").mkdir(parents=True)
    outside = tmp_path.parent / f"{tmp_path.name}_outside"
    outside.mkdir()
    (outside / "kept").write_text("")
    (tmp_path / "step_12").symlink_to(outside)
    removed = prune_steps(tmp_path, after_step=9)
    assert [path.name for path in removed] == ["step_000010.parquet", "step_11", "step_12"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "notes.txt",
        "step_000001.parquet",
        "step_x.parquet",
    ]
    assert (outside / "kept").exists()
    assert prune_steps(tmp_path / "nowhere", after_step=0) == []
