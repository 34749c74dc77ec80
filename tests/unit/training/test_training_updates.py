"""Hop 5: groups to rows, rows to optimizer steps, and what a step has to know before its loss."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from grpo_loop import TOKENIZER, WRONG, Loop, same_weights
from tiny import tiny_model
from workings.config.grpo import GRPOConfig
from workings.config.objective_settings import ObjectiveConfig
from workings.objectives.shaping import shaped
from workings.training.distributed import Ranks
from workings.training.packing import TrainRow, pack, step_totals
from workings.training.policy_loss import policy_gradient_loss
from workings.training.policy_metrics import policy_metrics
from workings.training.reference import Reference
from workings.training.replay_score import replay_scorer
from workings.training.reward_kl import kl_of_rows, token_penalties
from workings.training.step import StepOutcome, policy_step, score
from workings.training.updates import Packer, Update, score_updates, step_statistics, training_rows
from workings.types import Problem, Prompt, Rollout, RolloutGroup


def rollout(length, *, reward=1.0, finish="eos", off=0, recorded=()):
    return Rollout(
        ids=[10 + n for n in range(length)],
        sampling_logprobs=[math.nan] * off + [-1.0] * (length - off),
        kept_mass=[1.0] * length,
        mask=[True] * length,
        off_policy=[True] * off + [False] * (length - off),
        text="",
        finish_reason=finish,
        weight_version=0,
        reward=reward,
        recorded_logprobs=recorded,
    )


def group(*rollouts, ids=(5, 6, 7)):
    problem = Problem(id="p", question="?", answer="1")
    return RolloutGroup(prompt=Prompt(problem=problem, ids=ids, text="?"), rollouts=rollouts)


def packer(objective=None, **settings):
    config = GRPOConfig.model_validate(
        {
            "name": "run",
            "model": {"name_or_path": "tiny"},
            "data": {"train": {"path": "p"}},
            "num_generations": 2,
            **settings,
            "batch": {"microbatch_tokens": 8192, **settings.get("batch", {})},
        }
    )
    return Packer(
        config=config,
        objective=(objective or ObjectiveConfig()).resolve(),
        layout="padded",
        pad_id=0,
        device=torch.device("cpu"),
        ranks=Ranks(),
    )


# ------------------------------------------------------------------------------------------ rows


def test_grpo_rows_carry_what_the_rollouts_have():
    groups = [group(rollout(2), rollout(3, off=1, recorded=(-0.5, math.nan, math.nan)))] * 2
    rows = training_rows(groups, [[0.5, [1.0, 2.0, 3.0]], [0.0, 0.0]], first_key=8)
    assert [row.key for row in rows] == [8, 9, 10, 11]
    assert [row.group for row in rows] == [0, 0, 1, 1]
    assert [row.group_tokens for row in rows] == [5] * 4
    assert rows[1].advantage == [1.0, 2.0, 3.0]
    assert rows[1].off_policy == [True, False, False]
    assert rows[1].recorded_logprobs == (-0.5, *rows[1].recorded_logprobs[1:])


def test_grpo_rows_without_a_reward_or_an_end_are_not_trained():
    groups = [group(rollout(2), rollout(3, reward=None), rollout(4, finish="length"))]
    rows = training_rows(groups)
    assert [row.num_trained for row in rows] == [2, 0, 4]
    rows = training_rows(groups, mask_truncated=True)
    assert [row.num_trained for row in rows] == [2, 0, 0]
    assert {row.group_tokens for row in rows} == {2}


@pytest.mark.parametrize(
    ("num_groups", "per_update", "sizes"),
    [(4, 4, [4]), (4, 2, [2, 2]), (5, 2, [1, 2, 2]), (1, 2, [1]), (0, 2, [0])],
)
def test_grpo_updates_hold_whole_groups_in_order(num_groups, per_update, sizes):
    rows = training_rows([group(rollout(2), rollout(3))] * num_groups, [[1.0, -1.0]] * num_groups)
    parts = packer(
        prompts_per_step=4, train_batch_size=2 * per_update, batch={"microbatch_rows": 1}
    ).updates(rows)
    assert [part.totals.num_rows for part in parts] == [2 * size for size in sizes]
    keys = [key for part in parts for batch in part.microbatches for key in batch.keys]
    assert sorted(keys) == list(range(2 * num_groups))
    assert [len(part.microbatches) for part in parts] == [2 * size for size in sizes]
    assert [part.totals.num_microbatches for part in parts] == [2 * size for size in sizes]


def test_grpo_rows_that_cannot_move_the_weights_stay_in_the_denominators():
    rows = training_rows([group(rollout(2), rollout(3))], [[1.0, 0.0]])
    (update,) = packer(prompts_per_step=1).updates(rows)
    assert (update.totals.num_rows, update.totals.num_tokens) == (2, 5)
    assert [batch.keys for batch in update.microbatches] == [(0,)]
    (update,) = packer(prompts_per_step=1).updates(rows, whole=True)
    assert sorted(key for batch in update.microbatches for key in batch.keys) == [0, 1]
    # A bonus for entropy or a KL moves them all the same.
    for settings in ({"entropy_coef": 0.1}, {"beta": 0.1}, {"preset": "kl_cov"}):
        objective = ObjectiveConfig(**settings)
        (update,) = packer(objective, prompts_per_step=1).updates(rows)
        assert sum(len(batch.keys) for batch in update.microbatches) == 2


@pytest.mark.parametrize("preset", ["grpo", "dapo", "dr_grpo", "gspo", "luffy", "reinforce++"])
def test_grpo_leaving_idle_rows_out_changes_nothing(preset, tmp_path):
    def flat_half(request, index):
        return WRONG if request.prompt_ids[0] % 2 or index else WRONG.replace("5", "4")

    loops = [
        Loop(
            tmp_path / str(skip),
            flat_half,
            objective={"preset": preset, "entropy_coef": 0.0, "dynamic_sampling": "none"},
            prompts_per_step=4,
            train_batch_size=8,
            batch={"skip_zero_advantage": skip},
            optimizer={"learning_rate": 1e-3},
        ).run()
        for skip in (True, False)
    ]
    for row, other in zip(loops[0].rows, loops[1].rows, strict=True):
        assert row["loss"] == pytest.approx(other["loss"], abs=1e-6)
        assert row["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4)
        assert row["trained_tokens"] <= other["trained_tokens"]


# ---------------------------------------------------------------------------------------- tables


def test_luffy_recorded_probabilities_are_float32_with_nan_where_unknown():
    """What enters the ratio is what was stored: float32, also under a float64 model."""
    recorded = (math.log(0.3), math.log(0.7), math.nan, math.nan)
    groups = [group(rollout(4, off=2, recorded=recorded), rollout(3))]
    rows = training_rows(groups, [[1.0, -1.0]])
    (batch,) = pack(rows, layout="padded", max_tokens=100)
    assert batch.recorded_logprobs.dtype == batch.sampling_logprobs.dtype == torch.float32
    assert batch.recorded_logprobs[0].isnan().tolist() == [False, False, True, True]
    assert batch.recorded_logprobs[1].isnan().all()
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    (scored,) = score(model, [batch])
    assert scored.old_logprobs.dtype == torch.float64
    lp = scored.old_logprobs[0, :2]
    stored = batch.recorded_logprobs[0, :2].double()
    for settings, values in (
        ({"preset": "luffy", "use_teacher_probs": True}, lp.exp() / (stored.exp() + 1e-6)),
        (
            {"preset": "exgrpo"},
            shaped(lp - stored, shaping="ratio", gamma=0.1, weight=0.1, power=0.5),
        ),
    ):
        objective = ObjectiveConfig(**settings, entropy_coef=0.0, reduction="token_mean").resolve()
        totals = step_totals(rows, Ranks())
        loss = policy_gradient_loss(totals, objective, max_length=4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        outcome = policy_step(model, optimizer, [batch], loss)
        # Own tokens have the ratio 1: two with A = 1, three with A = -1.
        assert outcome.loss == pytest.approx((-values.sum().item() - 2 + 3) / 7, abs=1e-9)


def test_exgrpo_candidates_are_scored_by_the_current_weights():
    model = tiny_model(TOKENIZER)
    candidates = [
        SimpleNamespace(
            prompt=Prompt(problem=Problem(id="p", question="?", answer="1"), ids=prompt, text="?"),
            rollout=SimpleNamespace(ids=ids, num_tokens=len(ids)),
        )
        for prompt, ids in (((5, 6), (7, 8, 9)), ((9,), (30,)), ((9, 4, 4), (40, 41, 42, 43, 44)))
    ]
    wanted = {"entropy": [], "perplexity": []}
    for candidate in candidates:
        ids = [*candidate.prompt.ids, *candidate.rollout.ids]
        logits = model(torch.tensor([ids])).logits[0, len(candidate.prompt.ids) - 1 : -1] / 0.7
        table = torch.log_softmax(logits, -1)
        own = table[torch.arange(len(candidate.rollout.ids)), list(candidate.rollout.ids)]
        wanted["entropy"].append(-(table.exp() * table).sum(-1).mean().item())
        wanted["perplexity"].append((-own.mean()).exp().item())
    for measure, values in wanted.items():
        score_of = replay_scorer(model, measure, temperature=0.7, max_tokens=8)
        assert score_of(candidates) == pytest.approx(values, rel=1e-5)
        assert score_of([]) == []


# ------------------------------------------------------------------------- KL as a part of rewards


def test_grpo_penalties_stand_at_their_tokens():
    groups = [group(rollout(2), rollout(4)), group(rollout(3, reward=None), rollout(1))]
    model = tiny_model(TOKENIZER)
    reference = Reference(tiny_model(TOKENIZER, seed=3))
    rows = training_rows(groups, first_key=6)
    scored = score_updates(
        packer(prompts_per_step=2, train_batch_size=2).updates(rows, whole=True),
        model,
        temperature=1.0,
        autocast=None,
        old=True,
        reference=reference,
    )
    penalties = token_penalties(scored, groups, coefficient=0.5, first_key=6)
    assert [[len(row) for row in line] for line in penalties] == [[2, 4], [3, 1]]
    assert penalties[1][0] == [0.0] * 3
    other = tiny_model(TOKENIZER, seed=3)
    ids = torch.tensor([[5, 6, 7, 10, 11]])
    table, against = (
        torch.log_softmax(m(ids).logits[0, 2:4], -1)[torch.arange(2), ids[0, 3:]]
        for m in (model, other)
    )
    assert penalties[0][0] == pytest.approx((0.5 * (table - against)).tolist(), abs=1e-6)
    values = [value for line in penalties for row in line for value in row]
    assert kl_of_rows(penalties, 0.5, Ranks())["kl"] == pytest.approx(sum(values) / 0.5 / 10)
    twice = SimpleNamespace(all_sum=lambda own: own + torch.tensor([9.0, 5.0]))
    assert kl_of_rows(penalties, 0.5, twice)["kl"] == pytest.approx((sum(values) + 9) / 0.5 / 15)
    assert kl_of_rows([], 0.0, Ranks()) == {"kl": 0.0}


# ------------------------------------------------------------------------------------- statistics


def mixed_row(key, *, gap):
    """A row of two teacher tokens and two own ones, which the engine scored `gap` too low."""
    return TrainRow(
        key=key,
        group=key,
        prompt_ids=(5, 6),
        response_ids=(20 + key, 21, 22, 23),
        mask=(True,) * 4,
        advantage=1.0,
        sampling_logprobs=(math.nan, math.nan, -4.6 - gap, -4.6 - gap),
        kept_mass=(1.0,) * 4,
        off_policy=(True, True, False, False),
        group_tokens=4,
    )


def test_luffy_rows_that_a_correction_drops_leave_every_denominator():
    """Also that of the likelihood of traces: the teacher's tokens of the row go with it."""
    rows = [mixed_row(0, gap=0.0), mixed_row(1, gap=9.0)]
    objective = ObjectiveConfig(
        preset="luffy",
        correction="geometric_mask",
        correction_low=0.1,
        correction_high=10.0,
        correction_renormalise=True,
    ).resolve()
    update = Update(
        totals=step_totals(rows, Ranks()),
        microbatches=pack(rows, layout="padded", max_tokens=100),
    )
    assert (update.totals.num_rows, update.totals.num_off_policy_tokens) == (2, 4)
    known = step_statistics(
        update,
        objective,
        tiny_model(TOKENIZER),
        temperature=1.0,
        autocast=None,
        seed=0,
        ranks=Ranks(),
    )
    totals = known.update.totals
    assert (totals.num_rows, totals.num_tokens, totals.num_off_policy_tokens) == (1, 4, 2)
    kept = {
        key: batch.mask[index].any().item()
        for batch in known.update.microbatches
        for index, key in enumerate(batch.keys)
    }
    assert kept == {0: True, 1: False}


@pytest.mark.parametrize("num_batches", [1, 2, 4])
def test_luffy_a_likelihood_term_without_traces_is_no_nan(num_batches):
    """Pitfalls 2 and 3: a microbatch without a trace gives 0, and the sum is the whole's."""
    rows = [
        TrainRow(
            key=key,
            group=0,
            prompt_ids=(5, 6),
            response_ids=(20 + key, 21, 22)[: 2 + key % 2],
            mask=(True,) * (2 + key % 2),
            advantage=[0.75, -0.25, -0.25, -0.25][key],
            sampling_logprobs=(-4.6,) * (2 + key % 2),
            kept_mass=(1.0,) * (2 + key % 2),
            off_policy=(key == 0,) * (2 + key % 2),
            group_tokens=10,
        )
        for key in range(4)
    ]
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    objective = ObjectiveConfig(preset="rl_sft_loss", sft_loss_coef=0.7).resolve()
    outcomes = []
    for size in (4, 4 // num_batches):
        batches = pack(rows, layout="padded", max_tokens=100, max_rows=size)
        loss = policy_gradient_loss(step_totals(rows, Ranks()), objective, max_length=8)
        outcome = policy_step(
            model, torch.optim.SGD(model.parameters(), lr=0.0), batches, loss, max_grad_norm=0.0
        )
        outcomes.append((outcome, torch.cat([p.grad.flatten() for p in model.parameters()])))
    (whole, gradient), (cut, other) = outcomes
    assert cut.loss == pytest.approx(whole.loss, abs=1e-12)
    torch.testing.assert_close(other, gradient, rtol=0, atol=1e-12)
    ids = torch.tensor([[5, 6, 20, 21]])
    table = torch.log_softmax(model(ids).logits[0, 1:3], -1)
    nll = -(table[0, 20] + table[1, 21]).item() / 2
    assert whole.sums["loss/sft"] == pytest.approx(0.7 * nll, abs=1e-9)


def off_policy_gradient(advantage, *, old_shift=0.0, **settings):
    """Gradient of a step of one whole trace, with old log-probabilities off by `old_shift`."""
    row = replace(
        mixed_row(0, gap=0.0),
        off_policy=(True,) * 4,
        sampling_logprobs=(math.nan,) * 4,
        advantage=advantage,
    )
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    batches = score(model, pack([row], layout="padded", max_tokens=100))
    batches = [replace(b, old_logprobs=b.old_logprobs + old_shift) for b in batches]
    objective = ObjectiveConfig(entropy_coef=0.0, **settings).resolve()
    loss = policy_gradient_loss(step_totals([row], Ranks()), objective, max_length=8)
    policy_step(model, torch.optim.SGD(model.parameters(), lr=0.0), batches, loss)
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("preset", ["luffy", "luffy_clip", "rl_sft_loss"])
def test_luffy_no_advantage_is_no_gradient_on_a_trace(preset):
    extra = {"sft_loss_coef": 0.0} if preset == "rl_sft_loss" else {}
    assert not off_policy_gradient(0.0, preset=preset, **extra).any()
    assert off_policy_gradient(1.0, preset=preset, **extra).any() == (preset != "rl_sft_loss")


@pytest.mark.parametrize("preset", ["luffy", "luffy_clip"])
@pytest.mark.parametrize("shift", [-3.0, 3.0, 100.0])
def test_luffy_old_logprobs_have_no_say_on_a_trace(preset, shift):
    plain = off_policy_gradient(0.5, preset=preset)
    assert torch.equal(plain, off_policy_gradient(0.5, preset=preset, old_shift=shift))


# ---------------------------------------------------------------------------------------- metrics


def outcome(loss=0.0, **sums):
    return StepOutcome(loss=loss, grad_norm=1.0, skipped=False, sums=sums, maxima={"ratio": loss})


def test_grpo_metrics_weigh_tokens_and_average_updates():
    first = outcome(
        1.0, **{"loss/policy": 1.0, "tokens": 3.0, "own": 3.0, "entropy": 6.0, "clip_low": 1.0}
    )
    second = outcome(
        3.0, **{"loss/policy": 2.0, "loss/kl": 1.0, "tokens": 1.0, "own": 1.0, "clip_high": 1.0}
    )
    metrics = policy_metrics([first, second])
    assert (metrics["loss"], metrics["policy_loss"], metrics["kl_loss"]) == (2.0, 1.5, 0.5)
    assert metrics["token_entropy"] == 1.5
    assert (metrics["clip_fraction"], metrics["clip_fraction/low"]) == (0.5, 0.25)
    assert metrics["ratio/max"] == 3.0
    assert (metrics["num_updates"], metrics["trained_tokens"]) == (2.0, 4.0)
    assert not {"kl", "sft_loss", "clip_fraction/dual", "off_policy/probability"} & set(metrics)


def test_grpo_on_policy_is_dr_grpo_bit_for_bit(tmp_path):
    """Pitfall 4: the baseline of LUFFY is the same point as dr_grpo with its entropy bonus."""
    loops = [
        Loop(tmp_path / name, objective=objective, train_batch_size=4, epochs_per_rollout=2).run()
        for name, objective in {
            "on_policy": {"preset": "on_policy"},
            "dr_grpo": {"preset": "dr_grpo", "entropy_coef": 0.001},
            "grpo": {
                "preset": "grpo",
                "advantage": "group_mean",
                "reduction": "seq_mean_token_sum_norm",
                "entropy_coef": 0.001,
            },
            "luffy_clip without traces": {"preset": "luffy_clip", "num_off": 0},
        }.items()
    ]
    for other in loops[1:]:
        assert same_weights(loops[0].model, other.model)
        for row, same in zip(loops[0].rows, other.rows, strict=True):
            assert (row["loss"], row["grad_norm"]) == (same["loss"], same["grad_norm"])


class Passes(torch.nn.Module):
    """Counts forward passes of a model, with and without gradient."""

    def __init__(self, model):
        super().__init__()
        self.trained = self.scored = 0
        model.model.register_forward_hook(self.count)

    def count(self, *_):
        if torch.is_grad_enabled():
            self.trained += 1
        else:
            self.scored += 1


@pytest.mark.parametrize(
    ("settings", "scored"),
    [
        ({}, 0),  # one update with the weights that sampled: its own forward pass is the old one
        ({"train_batch_size": 4}, 1),  # two updates: the second's rows, before the first moves them
        ({"train_batch_size": 4, "epochs_per_rollout": 2}, 2),  # every row is trained again
        ({"epochs_per_rollout": 2}, 1),
        ({"objective": {"preset": "grpo", "beta": 0.1}}, 1),  # the reference
        ({"objective": {"preset": "clip_cov"}}, 1),  # statistics of the whole step
    ],
)
def test_grpo_scores_no_row_that_needs_no_score(settings, scored, tmp_path):
    loop = Loop(
        tmp_path,
        max_steps=1,
        batch={"skip_zero_advantage": False, "microbatch_tokens": 100_000},
        **settings,
    )
    passes = Passes(loop.model)
    loop.run()
    of_the_head = 2  # passes of the check before the first step
    updates = loop.config.updates_per_rollout
    assert passes.trained == updates
    reference = loop.objective.needs_reference  # a copy, whose passes are not this model's
    assert passes.scored == of_the_head + scored - reference


@pytest.mark.parametrize("updates", [2, 3])
def test_grpo_the_first_update_without_its_score_is_the_same_update(updates, tmp_path):
    """Its old log-probabilities are those of its own pass, as the scored ones would be."""
    rows = [
        TrainRow(
            key=k,
            group=k // 2,
            prompt_ids=[5, 6],
            response_ids=[10 + k, 20, 30],
            mask=[True] * 3,
            advantage=[1.0, -1.0][k % 2],
        )
        for k in range(2 * updates)
    ]
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    made = packer(prompts_per_step=updates, train_batch_size=2).updates(rows)
    assert len(made) == updates
    settings = {"temperature": 1.0, "autocast": None, "old": True, "reference": None}
    every = score_updates(made, model, **settings)
    later = score_updates(made, model, first_is_current=True, **settings)
    assert later[0].microbatches[0].old_logprobs is None
    gradients = []
    for update in (every[0], later[0]):
        twin = tiny_model(TOKENIZER, dtype=torch.float64)
        optimizer = torch.optim.SGD(twin.parameters(), lr=0.0)
        loss = policy_gradient_loss(
            update.totals, ObjectiveConfig(preset="grpo").resolve(), max_length=16
        )
        policy_step(twin, optimizer, update.microbatches, loss, max_grad_norm=0)
        gradients.append([p.grad for p in twin.parameters()])
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=1e-14)
    for first, second in zip(every[1:], later[1:], strict=True):
        assert torch.equal(first.microbatches[0].old_logprobs, second.microbatches[0].old_logprobs)
