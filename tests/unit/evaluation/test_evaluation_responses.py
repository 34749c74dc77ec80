"""Responses in parts: what is missing, what is refused, and that nothing stands half written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workings.errors import DataError
from workings.evaluation.responses import Plan, ResponseStore, differing_values, make_plan
from workings.rollout.engine import Request
from workings.tracking.rollouts import write_groups
from workings.types import Problem, Prompt, Rollout, RolloutGroup


def group(number: int) -> RolloutGroup:
    problem = Problem(id=f"p/{number}", question=f"{number}?", answer=str(number))
    rollout = Rollout(
        ids=(1, number),
        sampling_logprobs=(-0.5, -0.25),
        kept_mass=(1.0, 1.0),
        mask=(True, True),
        off_policy=(False, False),
        text=f"it is {number}",
        finish_reason="eos",
        weight_version=0,
    )
    return RolloutGroup(
        prompt=Prompt(problem=problem, ids=(7, number), text=f"Q{number}"), rollouts=(rollout,)
    )


GROUPS = [group(number) for number in range(7)]


def plan(
    *, part_problems: int = 3, seed: int = 0, settings: dict[str, object] | None = None
) -> Plan:
    prompts = [one.prompt for one in GROUPS]
    requests = [Request(prompt_ids=one.ids, seed=seed + n) for n, one in enumerate(prompts)]
    return make_plan(prompts, requests, settings=settings or {}, part_problems=part_problems)


def test_parts_are_missing_until_they_are_written(tmp_path: Path) -> None:
    store = ResponseStore(tmp_path / "d")
    assert not store.begun
    begun = store.begin(plan())
    assert begun.parts() == [range(3), range(3, 6), range(6, 7)]
    store.write(range(3, 6), GROUPS[3:6])
    assert store.missing(begun) == [range(3), range(6, 7)]
    assert store.begun
    assert not store.complete
    with pytest.raises(DataError, match="part_000000"):
        store.gather(begun)
    for part in store.missing(begun):
        store.write(part, GROUPS[part.start : part.stop])
    assert store.gather(begun) == GROUPS
    assert store.complete
    assert store.missing(begun) == []
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == [
        "responses.parquet",
        "sampling.json",
    ]
    assert ResponseStore(tmp_path / "d").gather(begun) == GROUPS


def test_a_file_that_was_not_finished_is_no_part(tmp_path: Path) -> None:
    store = ResponseStore(tmp_path)
    begun = store.begin(plan())
    store.write(range(3), GROUPS[:3])
    part = tmp_path / "responses" / "part_000000.parquet"
    part.rename(part.with_name("part_000003.parquet.new"))
    assert store.missing(begun) == begun.parts()


def test_what_is_stored_says_how_parts_are_cut(tmp_path: Path) -> None:
    ResponseStore(tmp_path).begin(plan(part_problems=2))
    going = ResponseStore(tmp_path).go_on(plan(part_problems=5, settings={"a": 1}))
    assert (going.part_problems, going.settings) == (2, {"a": 1})
    assert ResponseStore(tmp_path).plan() == going


def test_responses_to_other_problems_are_refused(tmp_path: Path) -> None:
    ResponseStore(tmp_path).begin(plan())
    with pytest.raises(DataError, match=r"responses to 7 problems .* now there are 7") as caught:
        ResponseStore(tmp_path).go_on(plan(seed=5))
    assert "--fresh begins anew" in str(caught.value)


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    store = ResponseStore(tmp_path)
    begun = store.begin(plan(part_problems=7))
    store.write(range(7), GROUPS)
    part = tmp_path / "responses" / "part_000000.parquet"
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"part_000000\.parquet cannot be read"):
        store.gather(begun)
    write_groups(part, GROUPS[:4])
    with pytest.raises(DataError, match="holds responses to 4 problems; expected 7"):
        store.gather(begun)


def test_a_damaged_plan_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sampling.json").write_text('{"settings": {}}')
    with pytest.raises(DataError, match="does not hold the plan"):
        ResponseStore(tmp_path).plan()


def test_settings_that_differ_are_listed_with_both_values() -> None:
    stored = json.loads('{"sampling": {"max_tokens": 8, "stop": ["a"]}, "seed": 1, "old": true}')
    wanted = {"sampling": {"max_tokens": 5, "stop": ["a"]}, "seed": 1, "new": None}
    assert differing_values(stored, wanted) == [
        "sampling.max_tokens: 8 stored, 5 now",
        "old: true stored, nothing now",
    ]
    assert differing_values(stored, wanted, leave_out={"sampling", "old"}) == []
