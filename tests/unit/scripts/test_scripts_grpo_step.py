"""The GRPO step benchmark: our loop stopped step by step on a CPU, TRL's settings, the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def step(seconds: float, **phases: float) -> Any:
    from grpo_sides import PHASES, Step

    return Step(seconds=seconds, phases={name: phases.get(name, 0.0) for name in PHASES})


def test_our_loop_runs_as_it_is_and_stops_after_every_step(tmp_path: Path) -> None:
    from grpo_cases import CASES
    from grpo_sides import Ended, Steps, train_ours
    from shapes import write_model

    case = CASES["smoke"]
    done: list[Any] = []

    def wait(step: Any) -> bool:
        done.append(step)
        return len(done) < 2

    settings = {
        "folder": write_model(case.model, tmp_path / "tiny"),
        "out": tmp_path / "out",
        "engine": "transformers",
        "device": "cpu",
        "share": 0.5,
        "overrides": {"batch.microbatch_tokens": 64},
    }
    with pytest.raises(Ended):
        train_ours(case, Steps(wait=wait), settings)
    assert len(done) == 2
    for one in done:
        assert one.phases["rollout"] > 0
        assert one.phases["train"] > 0
        assert sum(one.phases.values()) == pytest.approx(one.seconds, rel=1e-6)
    lines = (tmp_path / "out/metrics.jsonl").read_text().splitlines()
    metrics = [json.loads(line) for line in lines]
    lengths = [row["train/completion_length/mean"] for row in metrics]
    assert lengths == [case.output_tokens] * 2
    assert not list((tmp_path / "out").glob("**/*.safetensors"))


def test_what_nobody_booked_belongs_to_the_rest() -> None:
    from grpo_sides import Ended, Steps

    finished: list[Any] = []
    steps = Steps(wait=lambda one: bool(finished.append(one)), rest="train")
    steps.begin()
    steps.add("rollout", 0.25)
    steps.started -= 1.0
    with pytest.raises(Ended):
        steps.finish()
    assert finished[0].phases["rollout"] == 0.25
    assert finished[0].phases["train"] == pytest.approx(finished[0].seconds - 0.25)


def test_a_booked_method_leaves_out_what_was_booked_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    import grpo_sides
    from grpo_sides import Steps, _book

    clock = iter([0.0, 1.0, 4.0, 10.0])
    monkeypatch.setattr(grpo_sides, "now", lambda: next(clock))

    class Owner:
        def inner(self) -> int:
            return 7

        def outer(self) -> int:
            return self.inner() + 1

    owner, steps = Owner(), Steps(wait=lambda one: True)
    _book(owner, "inner", steps, "rollout")
    _book(owner, "outer", steps, "score", nested=True)
    assert owner.outer() == 8
    assert steps.phases == {"rollout": 3.0, "score": 7.0}


@pytest.mark.parametrize("tuned", [True, False])
def test_trl_takes_one_optimizer_step_on_the_whole_batch(tuned: bool) -> None:
    from grpo_cases import CASES
    from grpo_sides import trl_settings

    for case in CASES.values():
        asked = {"tuned": tuned, "share": 0.4, "sleeps": True}
        found = trl_settings(case, folder="", out="", **asked)
        rows = found["per_device_train_batch_size"] * found["gradient_accumulation_steps"]
        assert rows == case.completions or case.completions < 8
        assert found["generation_kwargs"]["ignore_eos"]
        assert ("gradient_checkpointing" in found) == tuned


def test_overrides_reach_the_run_and_a_wrong_one_is_refused() -> None:
    from grpo_cases import CASES
    from grpo_sides import run_settings

    from workings.config.grpo import GRPOConfig

    settings = {"folder": "tiny", "overrides": {"batch.layout": "packed", "max_steps": 3}}
    config = GRPOConfig.model_validate(run_settings(CASES["smoke"], settings))
    assert (config.batch.layout, config.max_steps) == ("packed", 3)
    assert config.rows_per_update == CASES["smoke"].completions
    wrong = run_settings(CASES["smoke"], settings | {"overrides": {"batch.nothing": 1}})
    with pytest.raises(ValueError, match="nothing"):
        GRPOConfig.model_validate(wrong)


def test_rows_compare_ours_with_each_side_and_list_the_phases() -> None:
    from grpo_cases import CASES
    from grpo_step import rows
    from report import FIELDS, named_tables

    case = CASES["135M"]
    found = rows(
        case,
        {
            "ours": [step(1.0, rollout=0.6, train=0.4), step(3.0), step(2.0)],
            "trl": [step(6.0, rollout=5.0)],
            "trl_defaults": [step(10.0)],
        },
    )
    tuned, defaults, *phases = found
    assert tuned["name"] == "GRPO step, 135M, 64 x 8 samples, 128 in, 120 out, against TRL tuned"
    assert (tuned["value"], tuned["ratio"], tuned["n"]) == (case.tokens / 2, 3.0, 3)
    assert defaults["ratio"] == 5.0
    assert tuned["note"] == (
        "ours 2.00 s a step (1.00 to 3.00 of 3); TRL tuned 6.00 s a step (6.00 to 6.00 of 1)"
    )
    assert all(line.keys() <= FIELDS for line in found)
    [table] = named_tables(phases)
    assert "TRL at its defaults" in table
    assert "rollout" in table


def test_a_side_with_no_time_left_is_shown_by_its_warm_up_and_says_so() -> None:
    from grpo_cases import CASES
    from grpo_step import rows

    steps = {"ours": [step(1.0)], "trl": [step(4.0)], "trl_defaults": []}
    warmups = {"ours": step(9.0), "trl": step(9.0), "trl_defaults": step(5.0, train=3.0)}
    tuned, defaults, *phases = rows(CASES["135M"], steps, warmups)
    assert (tuned["ratio"], defaults["ratio"]) == (4.0, 5.0)
    assert "warm-up" not in tuned["note"]
    assert defaults["note"].endswith(
        "TRL at its defaults 5.00 s in its warm-up step, the only one it made"
    )
    assert [row["value"] for row in phases if row["name"].endswith("defaults, by train")] == [3.0]
    assert rows(CASES["135M"], {"ours": [], "trl": []}) == []


def test_a_call_takes_back_what_it_wrote_before_but_not_what_others_did(tmp_path: Path) -> None:
    from measured import document, write

    def content(*names: str) -> dict[str, Any]:
        made = [{"name": name, "value": 1.0, "unit": "s"} for name in names]
        return document("grpo_step", made, command="python x.py", commit="0" * 40)

    path = tmp_path / "results.json"
    write(path, content("another day", "135M"))
    write(path, content("ours alone"))
    write(path, content("ours against TRL"), replaced={"ours alone"})
    names = [row["name"] for row in json.loads(path.read_text())["results"]]
    assert names == ["another day", "135M", "ours against TRL"]


def test_one_side_alone_is_said_to_be_alone() -> None:
    from grpo_cases import CASES
    from grpo_step import rows

    for side, name in (("ours", "ours"), ("trl", "TRL tuned")):
        line = rows(CASES["135M"], {side: [step(1.0)]})[0]
        assert line["name"].endswith(f", {name} alone")
        assert "peer" not in line


def test_the_reward_is_the_share_of_even_ids() -> None:
    from grpo_cases import even_ids

    assert even_ids(completion_ids=[[2, 4, 5, 7], [], [8]], prompts=[]) == [0.5, 0.0, 1.0]
