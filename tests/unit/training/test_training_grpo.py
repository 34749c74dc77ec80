"""The GRPO loop under every objective: two steps of a tiny model, and what each axis does in it."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from grpo_loop import (
    RIGHT,
    TOKENIZER,
    WRONG,
    Loop,
    assert_finite,
    assert_resumes_exactly,
    same_weights,
)
from tiny import tiny_model
from workings.config.objective import PRESETS
from workings.errors import StoppedBySignal, TrainingError
from workings.models.lora import add_lora
from workings.rewards.components import Component
from workings.rewards.reward import build_reward

SEVERAL = {"train_batch_size": 4, "epochs_per_rollout": 2}


def unlike(request, index):
    """One right answer in a group and several lengths, so that every advantage has something."""
    return (RIGHT if index == request.seed % 4 else WRONG) + "." * (index % 3)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_grpo_every_preset_trains_with_several_updates(preset, tmp_path):
    objective = {"preset": preset}
    if preset == "exgrpo":
        settings = {"replay": {"start_solve_rate": 0.1}, "max_steps": 3}
    else:
        settings = {}
    loop = Loop(tmp_path, unlike, objective=objective, **SEVERAL, **settings).run()
    assert len(loop.rows) == loop.config.max_steps
    assert_finite(loop.rows)
    assert loop.moved > 1e-3
    for row in loop.rows:
        assert row["num_updates"] == 4
        assert row["skipped_steps"] == 0
        assert row["grad_norm"] > 0
        terms = [row.get(f"{term}_loss", 0.0) for term in ("policy", "kl", "entropy", "sft")]
        assert row["loss"] == pytest.approx(sum(terms), abs=1e-6)
    assert loop.rows[-1]["ratio/max"] > 1.01
    o = loop.objective
    names = {
        "kl_loss": o.beta > 0 and o.kl_in == "loss",
        "kl": o.beta > 0,
        "entropy_loss": o.entropy_coef > 0,
        "sft_loss": o.sft_loss_coef > 0,
        "covariance_token_fraction": o.chooses_by_covariance,
        "off_policy/probability": o.has_off_policy_rows,
        "gen_batches": o.dynamic_sampling == "filter",
        "replay/questions": o.replay,
    }
    for name, wanted in names.items():
        assert (name in loop.rows[-1]) == wanted, name


def test_grpo_equal_rewards_move_nothing(tmp_path):
    loop = Loop(tmp_path, lambda request, index: RIGHT, objective={"preset": "dr_grpo"}).run()
    assert loop.moved == 0
    assert [row["loss"] for row in loop.rows] == [0.0, 0.0]
    assert [row["solve_all"] for row in loop.rows] == [1.0, 1.0]


def old_of_updates(monkeypatch):
    """The old log-probabilities by row of every optimizer step, and the ratios' largest."""
    from workings.training import learn

    seen, inner = [], learn.policy_step

    def noted(model, optimizer, microbatches, loss, **settings):
        rows = {}
        for batch in microbatches:
            for index, key in enumerate(batch.keys):
                old = None if batch.old_logprobs is None else batch.old_logprobs[index]
                rows[key] = None if old is None else old[batch.mask[index]].clone()
        outcome = inner(model, optimizer, microbatches, loss, **settings)
        seen.append((rows, outcome.maxima["ratio"]))
        return outcome

    monkeypatch.setattr(learn, "policy_step", noted)
    return seen


def test_grpo_old_logprobs_are_fixed_over_epochs_and_minibatches(monkeypatch, tmp_path):
    """`Off-policy slices without old log-probs`: the ratio is 1 at first, and not later on."""
    seen = old_of_updates(monkeypatch)
    settings = {"objective": {"preset": "grpo_no_clip"}, "max_steps": 1}
    Loop(tmp_path, unlike, **settings, **SEVERAL, batch={"microbatch_rows": 3}).run()
    assert [sorted(rows) for rows, _ in seen] == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2
    for first, again in ((0, 2), (1, 3)):
        for key, old in seen[first][0].items():
            assert torch.equal(old, seen[again][0][key])
    assert seen[0][1] == pytest.approx(1.0, abs=1e-5)
    assert all(abs(ratio - 1) > 1e-3 for _, ratio in seen[1:])


def test_grpo_one_update_needs_no_old_logprobs(monkeypatch, tmp_path):
    seen = old_of_updates(monkeypatch)
    Loop(tmp_path, unlike, max_steps=1).run()
    ((rows, ratio),) = seen
    assert set(rows.values()) == {None}
    assert ratio == 1.0


# ------------------------------------------------------------------------------------------- KL


def rewards_for_lengths():
    """Shorter is better: the tiny model can learn it, and its own samples differ in it."""

    def shorter(prompts, completions, answer, completion_ids):
        return [-len(ids) / 8 for ids in completion_ids]

    component = Component(name="shorter", function=shorter)
    return build_reward("question_only", extra_components=(component,))


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("kl_in", ["loss", "reward"])
def test_grpo_a_kl_holds_the_policy_near_its_start(kl_in, lora, tmp_path):
    """Measured from the start of the run, also where the reference is an adapter switched off."""
    runs = {}
    for beta in (0.001, 20.0):
        model = tiny_model(TOKENIZER)
        if lora:
            targets = ("q_proj", "v_proj", "down_proj")
            model = add_lora(model, rank=2, alpha=4, dropout=0.0, targets=targets, seed=3)
        runs[beta] = Loop(
            tmp_path / str(beta),
            None,
            model=model,
            reward=rewards_for_lengths(),
            objective={"advantage": "group_mean", "beta": beta, "kl_in": kl_in},
            max_steps=4,
            max_tokens=8,
            num_generations=8,
            optimizer={"learning_rate": 0.02},
        ).run()
    for loop in runs.values():
        assert_finite(loop.rows)
        assert loop.rows[0]["kl"] == pytest.approx(0.0, abs=1e-6)
        assert abs(loop.rows[-1]["kl"]) > 1e-5
        assert ("kl_loss" in loop.rows[0]) == (kl_in == "loss")
    free, held = runs.values()
    assert not same_weights(free.model, held.model)
    if kl_in == "loss":  # k1 of a few samples, as in the reward, is too noisy to compare
        assert held.rows[-1]["kl"] < 0.8 * free.rows[-1]["kl"]


def test_grpo_beta_follows_its_target(tmp_path):
    """From step to step by at most 0.2 rows / horizon; the number is part of the state."""
    make = {"objective": {"beta": 0.5, "kl_target": 1e-6, "kl_horizon": 16}, "max_steps": 4}
    loop = Loop(tmp_path, unlike, **make).run()
    betas = [row["controller/beta"] for row in loop.rows]
    # No KL at the first step: down by 0.2 * 8 / 16; far above the target afterwards: up.
    assert betas[0] == pytest.approx(0.5 * 0.9)
    for before, after, row in zip(betas, betas[1:], loop.rows[1:], strict=False):
        assert row["kl"] > 1e-6
        assert after == pytest.approx(before * 1.1)
    assert loop.result.state.controllers == {"beta": betas[-1]}
    # The loss of a step uses the factor that the step before left.
    assert loop.rows[2]["kl_loss"] == pytest.approx(betas[1] * loop.rows[2]["kl"], rel=0.3)


def test_a11e_beta_entropy_and_rae_controllers_are_restored(tmp_path):
    def make(objective):
        return lambda folder, **kw: Loop(folder, objective=objective, max_steps=4, **SEVERAL, **kw)

    adaptive = {"beta": 0.5, "kl_target": 0.01, "kl_horizon": 16, "entropy_target": 4.6}
    straight, _ = assert_resumes_exactly(make(adaptive), tmp_path / "adaptive", at=2)
    assert set(straight.result.state.controllers) == {"beta", "entropy_coef"}
    in_reward = {"preset": "rloo", "kl_target": 0.01, "kl_horizon": 16}
    assert_resumes_exactly(make(in_reward), tmp_path / "reward", at=2)
    straight, second = assert_resumes_exactly(
        make({"advantage": "rae", "rae_decay": 0.5}), tmp_path / "rae", at=2
    )
    assert list(second.result.state.controllers) == ["rae/"]
    assert 0 < second.result.state.controllers["rae/"] < 1


def test_grpo_a_reference_is_the_start_also_after_resuming(tmp_path):
    def make(folder, **kw):
        objective = {"preset": "reinforce++_baseline", "beta": 0.2}
        return Loop(folder, objective=objective, max_steps=3, **kw)

    straight, _ = assert_resumes_exactly(make, tmp_path, at=1)
    assert straight.rows[-1]["kl"] > 0


# -------------------------------------------------------------------------------------- entropy


def test_grpo_the_entropy_factor_rises_below_its_target_and_falls_above(tmp_path):
    for target, sign in ((100.0, 1), (0.01, -1)):
        objective = {"entropy_target": target, "entropy_coef": 0.02, "entropy_coef_step": 0.005}
        loop = Loop(tmp_path / str(target), unlike, objective=objective, **SEVERAL).run()
        # Four updates a step.
        values = [row["controller/entropy_coef"] for row in loop.rows]
        low = [0.02 + 0.02 * sign, max(0.02 + 0.04 * sign, 0.0)]
        assert values == pytest.approx(low)
        # The bonus is given only while the entropy is at or below the target.
        assert ("entropy_loss" in loop.rows[0]) == (sign > 0)
        if sign > 0:
            assert loop.rows[0]["entropy_loss"] < 0


def test_grpo_only_tokens_of_high_entropy_are_trained(tmp_path):
    loop = Loop(tmp_path, unlike, objective={"top_entropy_quantile": 0.25}).run()
    for row in loop.rows:
        assert row["filtered_token_fraction"] == pytest.approx(0.75, abs=0.05)


# ----------------------------------------------------------------------------------- correction


def test_grpo_dropped_rows_are_counted_and_may_leave_the_denominators(tmp_path):
    """Half of the samples come with log-probabilities that are far off; their rows are dropped."""
    runs = {}
    for renormalise in (False, True):
        objective = {
            "preset": "dr_grpo",
            "correction": "geometric_mask",
            "correction_low": 0.5,
            "correction_high": 2.0,
            "correction_renormalise": renormalise,
        }
        loop = Loop(tmp_path / str(renormalise), unlike, objective=objective, max_steps=1)
        inner = loop.engine._sample

        def off(text, sampling, limit, inner=inner):
            sample = inner(text, sampling, limit)
            if "!" not in text:  # the right ones
                sample.sampling_logprobs[:] = [-20.0] * len(sample.ids)
            return sample

        loop.engine._sample = off
        runs[renormalise] = loop.run()
    kept, less = runs[False].rows[0], runs[True].rows[0]
    # Two of eight rows are right, each with an advantage of 3/4; the others have -1/4.
    assert kept["correction/dropped_row_fraction"] == 2 / 8
    assert kept["correction/outside_fraction"] == 2 / 8
    assert kept["correction/unscored_tokens"] == 0
    assert kept["trained_tokens"] > less["trained_tokens"]
    # B is 8 or 6; the rows that stay are the same.
    assert less["policy_loss"] == pytest.approx(kept["policy_loss"] * 8 / 6, rel=1e-5)


def test_grpo_a_truncated_distribution_is_weighed_in_the_loop(tmp_path):
    loop = Loop(
        tmp_path,
        None,
        reward=rewards_for_lengths(),
        objective={"correction": "tis_token"},
        sampling={"max_tokens": 8, "top_p": 0.6},
        num_generations=8,
    ).run()
    assert_finite(loop.rows)
    assert loop.rows[0]["mismatch_ratio/mean"] == pytest.approx(0.6, abs=0.06)
    assert loop.rows[0]["ratio/max"] == pytest.approx(1.0)


# ------------------------------------------------------------------------ truncation and length


def long_and_short(request, index):
    return WRONG * 4 if index < 2 else (RIGHT if index == 2 else WRONG)


@pytest.mark.parametrize(
    ("objective", "rows_in_loss", "scale"),
    [
        ({}, 8, 1.0),
        ({"mask_truncated": True}, 4, 2.0),
        ({"mask_truncated": True, "count_masked_rows": True}, 4, 1.0),
        ({"zero_truncated_advantage": True}, 4, 1.0),
    ],
)
def test_grpo_truncated_rows_leave_the_loss_as_asked(objective, rows_in_loss, scale, tmp_path):
    """Two truncated rows in each group of four. Statistics are of the whole group in every case."""
    settings = {"preset": "dr_grpo", **objective}
    loop = Loop(tmp_path, long_and_short, objective=settings, max_steps=1).run()
    (row,) = loop.rows
    assert row["truncated_fraction"] == 0.5
    trained = [
        (rollout, advantage)
        for groups, advantages in zip(loop.groups, loop.advantages, strict=True)
        for group, line in zip(groups, advantages, strict=True)
        for rollout, advantage in zip(group.rollouts, line, strict=True)
    ]
    zeroed = objective.get("zero_truncated_advantage")
    wanted = {"length": 0.0 if zeroed else -0.25, "eos": None}
    for rollout, advantage in trained:
        if rollout.finish_reason == "length":
            assert advantage == wanted["length"]
        else:
            assert advantage == (0.75 if rollout.reward else -0.25)
    short = [(r, a) for r, a in trained if r.finish_reason == "eos"]
    num_tokens = sum(len(r.ids) for r, _ in (short if rows_in_loss == 4 else trained))
    assert row["trained_tokens"] == num_tokens
    # On policy the loss of a row is -A n / (B L), L = 16.
    part = trained if not objective else short
    loss = -sum(a * len(r.ids) for r, a in part) / (8 * 16) * scale
    assert row["policy_loss"] == pytest.approx(loss, rel=1e-5)


def test_grpo_dapo_pays_for_length_in_the_last_fifth(tmp_path):
    """overlong_share=0.2 of 20 tokens: from 16 on a token costs a quarter (E26)."""
    texts = [RIGHT + "." * more for more in (0, 4, 5, 40)]
    lengths = [len(TOKENIZER.encode(text)) + 1 for text in texts[:3]]
    loop = Loop(
        tmp_path,
        lambda request, index: texts[index],
        objective={"preset": "dapo"},
        max_tokens=20,
        max_steps=1,
    )
    assert loop.config.paid_reward.overlong_buffer == 4
    loop.run()
    for group in loop.groups[0]:
        values = [rollout.components["overlong"] for rollout in group.rollouts]
        wanted = [-min(max(n - 16, 0) / 4, 1.0) for n in lengths] + [-1.0]
        assert values == pytest.approx(wanted)
        assert group.rollouts[0].reward == pytest.approx(1.0 + wanted[0])


# ------------------------------------------------------------------------- advantages in the loop


def test_grpo_remax_asks_for_one_greedy_answer_a_prompt(tmp_path):
    def script(request, index):
        return WRONG if request.num_samples > 1 and index else RIGHT

    loop = Loop(tmp_path, script, objective={"preset": "remax"}, max_steps=1).run()
    (sampled, _), (greedy, sampling) = loop.engine.batches
    assert [r.num_samples for r in sampled] == [4, 4]
    assert [r.num_samples for r in greedy] == [1, 1]
    assert [r.prompt_ids for r in greedy] == [r.prompt_ids for r in sampled]
    assert (sampling.temperature, sampling.max_tokens) == (0.0, 16)
    # The greedy answer is right, so the right samples are worth 0.
    assert loop.advantages[0] == [[0.0, -1.0, -1.0, -1.0]] * 2


def test_grpo_gdpo_puts_each_component_on_its_own_scale(tmp_path):
    """A component a hundred times as large does not drown the other (2601.05242)."""

    def large(prompts, completions, answer, **columns):
        return [100.0 * text.endswith(".") for text in completions]

    def script(request, index):
        return [RIGHT, WRONG, WRONG + ".", WRONG + "."][index]

    reward = build_reward(
        "question_only", extra_components=(Component(name="large", function=large),)
    )
    loop = Loop(tmp_path, script, reward=reward, objective={"preset": "gdpo"}, max_steps=1).run()
    # E18 before whitening: [0.634, -1.366, 0.366, 0.366].
    first, second = loop.advantages[0]
    assert first == second
    assert first[0] > first[2] == first[3] > 0 > first[1]
    assert loop.rows[0]["rewards/large/mean"] == 50.0


def test_grpo_reinforce_pp_gives_every_token_its_own_advantage(tmp_path):
    """KL costs stand at their tokens, so advantages differ within a row once the policy moved."""
    from workings.training import learn

    seen = []
    inner = learn.assign_credit

    def noted(objective, groups, **settings):
        credit = inner(objective, groups, **settings)
        seen.append((groups, credit, settings["penalties"]))
        return credit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learn, "assign_credit", noted)
        Loop(tmp_path, unlike, objective={"preset": "reinforce++", "beta": 0.5}).run()
    for step, (groups, credit, penalties) in enumerate(seen):
        flat = [value for line in credit.advantages for row in line for value in row]
        for group, line, costs in zip(groups, credit.advantages, penalties, strict=True):
            for rollout, row, cost in zip(group.rollouts, line, costs, strict=True):
                assert len(row) == len(cost) == len(rollout.ids)
                assert (len(set(row)) == 1) == (step == 0)
        assert sum(flat) == pytest.approx(0.0, abs=1e-3)
        scatter = sum(value**2 for value in flat) / (len(flat) - 1)
        assert scatter == pytest.approx(1.0, abs=1e-3)


# --------------------------------------------------------------------------------------- guards


def test_grpo_a_gradient_that_is_too_long_skips_the_step(tmp_path):
    optimizer = {"skip_above_grad_norm": 1e-6, "max_nonfinite_steps": 3}
    loop = Loop(tmp_path, unlike, optimizer=optimizer).run()
    assert [row["skipped_steps"] for row in loop.rows] == [1.0, 1.0]
    assert loop.moved == 0
    assert loop.result.state.nonfinite_in_a_row == 2
    with pytest.raises(TrainingError, match="3 steps in a row were skipped") as caught:
        Loop(tmp_path / "more", unlike, optimizer=optimizer, max_steps=3).run()
    norm = loop.rows[0]["grad_norm"]
    assert norm > 1e-6
    assert "above optimizer.skip_above_grad_norm=1e-06" in caught.value.message
    assert "not finite" not in caught.value.message
    assert caught.value.hint.startswith("set optimizer.skip_above_grad_norm above")


@pytest.mark.parametrize("schedule", ["synchronous", "one_step_off"])
def test_grpo_the_best_model_is_the_start_where_training_makes_it_worse(schedule, tmp_path):
    ahead = {"schedule": schedule, "engine": {"own_process": True}}
    settings = {"max_steps": 3, "evaluation": {"every_steps": 1}}
    if schedule != "synchronous":
        settings |= ahead
    accuracy = {0: 0.5, 1: 0.25, 2: 0.5, 3: 0.0}

    def run(folder, **more):
        return Loop(folder, unlike, **settings, **more)

    def check(loop):
        assert loop.result.state.best_step == 0
        best = json.loads((loop.folder / "best/best.json").read_text())
        assert best == {"step": 0, "value": 0.5}
        kept = load_file(loop.folder / "best/model.safetensors")
        assert all(torch.equal(tensor, loop.start[name]) for name, tensor in kept.items())
        assert "holds the policy of step 0" in (loop.folder / "run.log").read_text()

    check(run(tmp_path / "whole").run(evaluate=lambda step: {"accuracy": accuracy[step]}))
    halted = run(tmp_path / "halted")
    halted.recorder.stop_at = (1, halted.stop)
    with pytest.raises(StoppedBySignal):
        halted.run(evaluate=lambda step: {"accuracy": accuracy[step]})
    again = run(tmp_path / "halted", resume="latest")
    check(again.run(evaluate=lambda step: {"accuracy": accuracy[step]}))
    # Better than what was seen since, but not than the start, which the resumed run remembers.
    assert again.result.state.best_value == 0.5


@pytest.mark.parametrize("layout", ["padded", "packed", "shared_prompt"])
def test_grpo_a_run_does_not_depend_on_how_its_steps_are_cut(layout, tmp_path):
    settings = {"objective": {"preset": "luffy", "sft_loss_coef": 0.5}, "max_steps": 1}
    sgd = {"learning_rate": 1e-3, "max_grad_norm": 0}
    whole = Loop(tmp_path / "whole", unlike, **settings, optimizer=sgd).run()
    batch = {"layout": layout, "microbatch_rows": 1}
    cut = Loop(tmp_path / "cut", unlike, **settings, optimizer=sgd, batch=batch).run()
    for name in ("loss", "policy_loss", "entropy_loss", "sft_loss", "grad_norm"):
        assert cut.rows[0][name] == pytest.approx(whole.rows[0][name], rel=2e-5), name


def test_grpo_nothing_trained_is_a_step_without_a_loss(tmp_path):
    """Every row truncated and masked out: loss 0, gradient 0, no NaN."""
    loop = Loop(
        tmp_path,
        lambda request, index: WRONG * 4 + str(index),
        objective={"preset": "dapo", "mask_truncated": True, "dynamic_sampling": "none"},
    ).run()
    assert_finite(loop.rows)
    assert [row["loss"] for row in loop.rows] == [0.0, 0.0]
    assert [row["trained_tokens"] for row in loop.rows] == [0, 0]
    assert loop.moved == 0


@pytest.mark.parametrize(
    ("objective", "warns"),
    [
        ({"preset": "dr_grpo"}, True),
        ({"preset": "luffy"}, False),  # the trace is right, so the group is not flat
        ({"preset": "no_baseline"}, True),  # 0 is what every sample is worth
    ],
)
def test_grpo_flat_groups_are_warned_about_where_they_teach_nothing(objective, warns, tmp_path):
    loop = Loop(tmp_path, lambda request, index: WRONG, objective=objective, max_steps=5).run()
    log = (tmp_path / "run.log").read_text(encoding="utf-8")
    assert ("groups were flat in the last 5 steps" in log) == warns
    assert (loop.moved > 0) == (objective["preset"] == "luffy")
