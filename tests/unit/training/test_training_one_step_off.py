"""The loop that samples one batch ahead: whose samples it trains, their weight, how it resumes."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from grpo_loop import (
    RIGHT,
    TOKENIZER,
    WRONG,
    Loop,
    assert_finite,
    assert_resumes_exactly,
    drawn,
    same_weights,
    without_times,
)
from textbook import response_logits
from tiny import tiny_model
from workings.errors import ConfigError, EngineError
from workings.models.lora import add_lora
from workings.rewards.components import Component
from workings.rewards.reward import build_reward
from workings.training.grpo import train_grpo
from workings.training.one_step_off import train_one_step_off

OFF = {"schedule": "one_step_off", "engine": {"own_process": True}}
SEVERAL = {"train_batch_size": 4, "epochs_per_rollout": 2}
PARTS = ("model", "engine", "sampler", "sampling", "reward", "recorder", "checkpointer", "stop")


def low_ids():
    """A reward for tokens of low ids: it differs between any two samples of the tiny model."""

    def function(prompts, completions, answer, completion_ids):
        return [-sum(ids) / len(ids) / 100 for ids in completion_ids]

    component = Component(name="low_ids", function=function)
    return build_reward("question_only", extra_components=(component,))


def sampled(folder, **settings):
    """A run that samples from the tiny model itself, on the side of the trainer."""
    usual = {
        "reward": low_ids(),
        "objective": {"advantage": "group_mean"},
        "max_tokens": 8,
        "max_steps": 4,
        "optimizer": {"learning_rate": 0.02},
    }
    return Loop(folder, None, **OFF, **{**usual, **settings})


def with_snapshots(loop):
    """The loop, and the weights at the end of every step as they come (index 0: the start)."""
    weights, write = [copy.deepcopy(loop.start)], loop.recorder.record_rollouts

    def noted(*args, **kwargs):
        weights.append(copy.deepcopy(loop.model.state_dict()))
        write(*args, **kwargs)

    loop.recorder.record_rollouts = noted
    return loop, weights


class Row:
    """A rollout as the textbook reads it."""

    def __init__(self, group, rollout):
        self.prompt_ids, self.response_ids = group.prompt.ids, rollout.ids


@torch.no_grad()
def logprobs_under(weights, group, rollout):
    model = tiny_model(TOKENIZER)
    model.load_state_dict(weights)
    table = torch.log_softmax(response_logits(model, Row(group, rollout)).double(), -1)
    return [table[place, token].item() for place, token in enumerate(rollout.ids)]


def test_samples_are_of_the_weights_of_one_step_before(tmp_path):
    """By their label, and by their log-probabilities under the weights of every step."""
    loop, weights = with_snapshots(sampled(tmp_path))
    loop.run()
    versions = [
        {r.weight_version for group in groups for r in group.rollouts} for groups in loop.groups
    ]
    assert versions == [{0}, {0}, {1}, {2}]
    for step, groups in enumerate(loop.groups):
        for group in groups:
            for rollout in group.rollouts:
                sampler = logprobs_under(weights[max(step - 1, 0)], group, rollout)
                assert list(rollout.sampling_logprobs) == pytest.approx(sampler, abs=1e-4)
    trained = logprobs_under(weights[3], loop.groups[3][0], loop.groups[3][0].rollouts[0])
    assert trained != pytest.approx(list(loop.groups[3][0].rollouts[0].sampling_logprobs), abs=1e-2)
    assert [row["weight_version_lag"] for row in loop.rows] == [0.0, 1.0, 1.0, 1.0]
    assert [row["weight_version_lag/mean"] for row in loop.rows] == [0.0, 1.0, 1.0, 1.0]


def test_tokens_weigh_as_decoupled_ppo_says(tmp_path, monkeypatch):
    """The gradient of -min(pi/mu, 2) A log pi (AReaL, eq. 5, at one update), in float64."""
    from workings.training import learn

    steps, inner = [], learn.policy_step

    def noted(model, optimizer, *args, **kwargs):
        before = copy.deepcopy(model.state_dict())
        outcome = inner(model, optimizer, *args, **kwargs)
        grads = {name: p.grad.clone() for name, p in model.named_parameters()}
        steps.append((before, grads))
        return outcome

    monkeypatch.setattr(learn, "policy_step", noted)
    optimizer = {"learning_rate": 0.05, "max_grad_norm": 0.0}
    loop = sampled(tmp_path, optimizer=optimizer, num_generations=6, max_steps=3).run()
    for (before, grads), groups, advantages, row in zip(
        steps, loop.groups, loop.advantages, loop.rows, strict=True
    ):
        model = tiny_model(TOKENIZER, dtype=torch.float64)
        model.load_state_dict(before)
        total, ratios, num_rows = 0.0, [], sum(len(group.rollouts) for group in groups)
        for group, line in zip(groups, advantages, strict=True):
            for rollout, advantage in zip(group.rollouts, line, strict=True):
                table = torch.log_softmax(response_logits(model, Row(group, rollout)), -1)
                for place, token in enumerate(rollout.ids):
                    ratio = math.exp(table[place, token].item() - rollout.sampling_logprobs[place])
                    weight = min(ratio, 2.0) / (len(rollout.ids) * num_rows)
                    total = total - weight * advantage * table[place, token]
                    ratios += [ratio] if advantage else []
        total.backward()
        for name, parameter in model.named_parameters():
            scale = max(parameter.grad.abs().max().item(), 1e-6)
            assert (grads[name] - parameter.grad).abs().max().item() < 1e-4 * scale, name
        assert row["mismatch_ratio/mean"] == pytest.approx(sum(ratios) / len(ratios), rel=1e-4)
        assert row["mismatch_ratio/max"] == pytest.approx(max(ratios), rel=1e-4)
        k3 = [ratio - 1 - math.log(ratio) for ratio in ratios]
        assert row["mismatch_kl"] == pytest.approx(sum(k3) / len(k3), rel=1e-3, abs=1e-9)
        outside = sum(ratio > 2 for ratio in ratios) / len(ratios)
        assert row["correction/outside_fraction"] == pytest.approx(outside)
        assert row["ratio/max"] == 1.0
    assert loop.rows[0]["mismatch_kl"] < 1e-9
    assert loop.rows[2]["correction/outside_fraction"] > 0


def test_with_several_updates_the_ratio_is_against_the_start_of_the_step(tmp_path):
    """Proximal over behaviour stays what it was, while the ratio moves away from 1."""
    loop = sampled(tmp_path, **SEVERAL, objective={"preset": "grpo_no_clip"}).run()
    assert_finite(loop.rows)
    assert loop.rows[0]["ratio/max"] > 1.01
    assert loop.rows[0]["mismatch_ratio/max"] == pytest.approx(1.0, abs=1e-3)
    assert loop.rows[1]["mismatch_ratio/max"] > 1.01


def test_without_a_step_in_between_both_schedules_are_one(tmp_path):
    """At a learning rate of 0 the weights before are those of now; only the version differs."""
    still = {"optimizer": {"learning_rate": 0.0}, "objective": {"correction": "tis_token"}}
    ahead = sampled(tmp_path / "ahead", **still).run()
    usual = Loop(
        tmp_path / "usual", None, reward=low_ids(), max_tokens=8, max_steps=4, **still
    ).run()
    lags = ("weight_version_lag", "weight_version_lag/mean")
    rows = [
        [{k: v for k, v in row.items() if k not in lags} for row in without_times(loop.rows)]
        for loop in (ahead, usual)
    ]
    assert rows[0] == rows[1]


def test_the_next_batch_is_asked_for_before_this_one_is_graded(tmp_path, monkeypatch):
    """Order of events: collect, load, submit, grade, train; and nothing is asked for at the end."""
    from workings.training import ahead, draw, one_step_off

    loop, events = sampled(tmp_path, max_steps=3), []

    def noting(owner, name):
        inner = getattr(owner, name)

        def noted(*args, **kwargs):
            events.append(name)
            return inner(*args, **kwargs)

        monkeypatch.setattr(owner, name, noted)

    for owner, name in (
        (loop.engine, "submit"),
        (loop.engine, "collect"),
        (loop.engine, "load_weights"),
        (draw, "grade_groups"),
        (one_step_off, "update_policy"),
    ):
        noting(owner, name)
    loop.run()
    assert ahead.collect_batch is draw.collect_batch
    step = ["collect", "load_weights", "submit", "grade_groups", "update_policy"]
    last = [name for name in step if name != "submit"]
    assert events == ["load_weights", "submit", *step, *step, *last]


# -------------------------------------------------------------------------------------- variants

FILTER = {"preset": "dapo", "overlong_share": 0.0}


def one_right(request, index):
    return (RIGHT if index == request.seed % 4 else WRONG) + "." * (index % 3)


VARIANTS = {
    "plain": {},
    "several updates": {"script": one_right, **SEVERAL},
    "filter": {"objective": FILTER, "script": lambda r, i: drawn(r, i, chance=0.15)},
    "replace": {"objective": {"dynamic_sampling": "replace"}},
    "remax": {"objective": {"preset": "remax"}},
    "remax, replace": {"objective": {"preset": "remax", "dynamic_sampling": "replace"}},
    "remax, filter": {"objective": {"preset": "remax", "dynamic_sampling": "filter"}},
    "luffy": {"objective": {"preset": "luffy"}},
    "luffy, beginnings": {
        "objective": {"preset": "luffy", "num_off": 2},
        "off_policy": {"prefix_min_ratio": 0.2, "prefix_max_ratio": 0.8},
    },
    "kl in the reward": {"objective": {"beta": 0.5, "kl_in": "reward", "kl_target": 0.1}},
    "vespo": {"objective": {"preset": "vespo"}, "script": one_right},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_resumes_exactly(name, tmp_path):
    settings = {"script": drawn, "max_steps": 4, **VARIANTS[name]}
    script = settings.pop("script")

    def make(folder, **more):
        return Loop(folder, script, logprob=-4.69, **OFF, **settings, **more)

    straight, second = assert_resumes_exactly(make, tmp_path, at=2)
    assert_finite(straight.rows)
    assert [row["weight_version_lag"] for row in straight.rows] == [0.0, 1.0, 1.0, 1.0]
    rollouts = [
        [(r.ids, r.reward, r.weight_version) for group in groups for r in group.rollouts]
        for groups in straight.groups[2:]
    ]
    again = [
        [(list(r.ids), r.reward, r.weight_version) for group in groups for r in group.rollouts]
        for groups in second.groups
    ]
    assert [[(list(ids), *rest) for ids, *rest in step] for step in rollouts] == [
        [(list(ids), *rest) for ids, *rest in step] for step in again
    ]
    if "filter" in name:
        assert max(row["gen_batches"] for row in straight.rows) > 1


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("lora", [False, True])
def test_a_run_on_its_own_samples_resumes_exactly(at, lora, tmp_path):
    """The weights that sampled the batch ahead are gone: it is in the checkpoint."""

    def make(folder, **more):
        model = tiny_model(TOKENIZER)
        if lora:
            model = add_lora(
                model, rank=2, alpha=4, dropout=0.0, targets=("q_proj", "down_proj"), seed=3
            )
        return sampled(folder, model=model, **more)

    assert_resumes_exactly(make, tmp_path, at=at)


def test_evaluations_and_checkpoints_change_nothing(tmp_path):
    """The batch ahead is waited for; an evaluation samples with the new weights, and is no step."""
    plain = sampled(tmp_path / "plain", max_steps=4).run()
    often = {"evaluation": {"every_steps": 1}, "checkpoint": {"every_steps": 1}}
    loop = sampled(tmp_path / "often", max_steps=4, **often)
    versions, values = [], iter([0.1, 0.5, 0.3, 0.2, 0.4])

    def evaluate(step):
        loop.engine.load_weights(step, loop.model.state_dict().items())
        versions.append(loop.engine.weight_version)
        return {"accuracy": next(values)}

    loop.run(evaluate=evaluate)
    assert versions == [0, 1, 2, 3, 4]
    assert same_weights(plain.model, loop.model)
    assert loop.result.state.best_step == 1
    rows = [without_times(run.rows) for run in (plain, loop)]
    assert rows[0] == rows[1]
    kept = sorted(path.parent.name for path in (tmp_path / "often").rglob("ahead.pt"))
    assert kept == ["step_000001", "step_000002", "step_000003"]  # nothing is ahead of the last
    resumed = sampled(
        tmp_path / "often", max_steps=4, resume=str(tmp_path / "often/checkpoints/step_000002")
    )
    resumed.run()
    assert same_weights(plain.model, resumed.model)


def test_a_batch_for_other_settings_is_not_taken_up(tmp_path):
    first = sampled(tmp_path).run_until(2)
    again = sampled(tmp_path, resume="latest", max_tokens=6).run()
    log = (tmp_path / "run.log").read_text()
    assert "other prompts, sampling or rewards than the settings say now" in log
    assert [row["weight_version_lag"] for row in again.rows] == [0.0, 1.0, 0.0, 1.0]
    assert max(len(r.ids) for group in again.groups[0] for r in group.rollouts) <= 6
    assert len(first.groups) == 2


def test_a_run_that_ended_goes_on_with_a_batch_of_its_own_weights(tmp_path):
    sampled(tmp_path, max_steps=2).run()
    longer = sampled(tmp_path, max_steps=4, resume="latest").run()
    assert "keeps no batch that was sampled ahead" in (tmp_path / "run.log").read_text()
    assert [row["weight_version_lag"] for row in longer.rows] == [0.0, 1.0, 0.0, 1.0]


def test_a_stale_engine_is_an_error_here_too(tmp_path):
    loop = Loop(tmp_path, drawn, **OFF, max_steps=4)
    loop.engine._stale = True
    with pytest.raises(EngineError, match=r"version 0; the trainer is at 2 and max_staleness is 1"):
        loop.run()


@pytest.mark.parametrize("train", [train_grpo, train_one_step_off])
def test_each_loop_wants_its_own_schedule(train, tmp_path):
    loop = Loop(tmp_path, drawn, **({} if train is train_one_step_off else OFF))
    parts = {name: getattr(loop, name) for name in PARTS}
    with pytest.raises(ConfigError, match=r"schedule=\w+; expected \w+") as caught:
        train(loop.config, **parts)
    loop.recorder.close()
    assert "runs the other" in str(caught.value.hint)
