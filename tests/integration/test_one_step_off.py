"""The schedule one_step_off with an engine in another process: it overlaps, and learns."""

from __future__ import annotations

import json
import multiprocessing

import pytest
from tiny_runs import grpo_arguments, one_step_off_arguments
from waiting_engine import builder, events, note

from grpo_loop import Loop
from tiny import save_tiny
from workings.cli.main import main
from workings.rollout.process_engine import ProcessEngine

OFF = {"schedule": "one_step_off", "engine": {"own_process": True}}


def test_training_begins_before_the_next_batch_is_sampled(tmp_path, monkeypatch):
    """Batch n + 1 is sampled only once update n has begun: the two overlap or nothing goes on."""
    from workings.training import one_step_off

    numbers, inner = iter(range(9)), one_step_off.update_policy

    def noted(*args, **kwargs):
        note(tmp_path, f"training {next(numbers)}")
        return inner(*args, **kwargs)

    monkeypatch.setattr(one_step_off, "update_policy", noted)
    loop = Loop(tmp_path / "run", **OFF, max_steps=3)
    loop.engine = ProcessEngine(builder(tmp_path))
    try:
        loop.run()
    finally:
        loop.engine.close()
    order = events(tmp_path)
    wanted = ["sampled 0", "training 0", "sampled 1", "training 1", "sampled 2", "training 2"]
    assert sorted(order) == sorted(wanted)
    for number in range(2):
        assert order.index(f"training {number}") < order.index(f"sampled {number + 1}")
    versions = [{r.weight_version for g in groups for r in g.rollouts} for groups in loop.groups]
    assert versions == [{0}, {0}, {1}]


def metric(folder, name):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [row[name] for row in map(json.loads, lines) if name in row]


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["grpo", "dr_grpo"])
def test_one_step_off_learns_about_as_well(preset, tmp_path):
    """The toy task of `test_learning`, with both schedules: half of the gain is the least."""
    model = save_tiny(tmp_path / "tiny")
    more = (
        f"objective.preset={preset}",
        "train_batch_size=null",
        "num_generations=8",
        "max_steps=14",
        "optimizer={learning_rate: 0.01}",
        "evaluation.every_steps=0",
        "checkpoint.every_steps=0",
    )
    gains = {}
    for name, arguments in (("usual", grpo_arguments), ("ahead", one_step_off_arguments)):
        assert main(arguments(model, tmp_path, *more, name=name)) == 0
        rewards = metric(tmp_path / name, "train/reward")
        gains[name] = sum(rewards[-3:]) / 3 - sum(rewards[:3]) / 3
    assert metric(tmp_path / "ahead", "train/weight_version_lag") == [0.0] + [1.0] * 13
    assert gains["usual"] > 0.1
    assert gains["ahead"] > 0.5 * gains["usual"]
    assert not multiprocessing.active_children()
