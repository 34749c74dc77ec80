"""Contract 1: a step is a step. Loss and gradient do not depend on how it is cut up."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

import textbook
from tiny import tiny_model, tiny_tokenizer
from workings.config.objective import PRESETS
from workings.config.objective_settings import ObjectiveConfig
from workings.errors import DataError, ModelError
from workings.training import step
from workings.training.distributed import Ranks
from workings.training.forward import check_head, choose_layout, response_scores
from workings.training.optim import build_adamw, learning_rate_at, set_learning_rate, warmup_from
from workings.training.packing import TrainRow, pack, step_totals
from workings.training.policy_loss import policy_gradient_loss
from workings.training.step import LossOutput, policy_step, score
from workings.training.supervised_loss import supervised_loss
from workings.training.updates import Update, step_statistics

TOKENIZER = tiny_tokenizer()
MAX_LENGTH = 16
OBJECTIVES = {
    **{name: ObjectiveConfig(preset=name) for name in PRESETS if name != "bnpo"},
    **{
        f"grpo+{name}": ObjectiveConfig(preset="grpo", correction=name, **bounds)
        for name, bounds in {
            "tis_token": {},
            "icepop": {"correction_low": 0.5, "correction_high": 1.5},
            "seq_product_truncate": {},
            "seq_product_mask": {},
            "geometric_truncate": {"correction_cap": 1.1},
            "geometric_mask": {"correction_low": 0.8, "correction_high": 1.2},
            "k3_reject": {"correction_threshold": 0.05},
        }.items()
    },
    **{
        f"grpo+{name} in the loss": ObjectiveConfig(preset="grpo", beta=0.2, kl_estimator=name)
        for name in ("k1", "abs", "k2", "k3", "k1_plus", "k3_plus", "k3_is")
    },
    **{
        f"luffy+{name}": ObjectiveConfig(preset="luffy", off_shaping=name)
        for name in ("no_reshape", "square_root", "pow", "logp", "p_logp")
    },
    "luffy+teacher_probs": ObjectiveConfig(preset="luffy", use_teacher_probs=True),
    "luffy+scale": ObjectiveConfig(preset="luffy", luffy_scale=True),
    "grpo+token_mean": ObjectiveConfig(preset="grpo", reduction="token_mean"),
    "grpo+prompt_mean": ObjectiveConfig(preset="grpo", reduction="prompt_mean"),
    "grpo+count_masked_rows": ObjectiveConfig(preset="grpo", count_masked_rows=True),
    "grpo+dual_clip": ObjectiveConfig(preset="grpo", dual_clip=1.25),
    "grpo+entropy": ObjectiveConfig(preset="grpo", entropy_coef=0.1),
    "clip_cov+share": ObjectiveConfig(preset="clip_cov", cov_share=0.1, cov_low=0, cov_high=9),
    "kl_cov+share": ObjectiveConfig(preset="kl_cov", cov_share=0.1),
    "grpo+top_entropy": ObjectiveConfig(preset="grpo", top_entropy_quantile=0.4),
    "grpo+renormalise": ObjectiveConfig(
        preset="grpo",
        correction="geometric_mask",
        correction_low=0.8,
        correction_high=1.2,
        correction_renormalise=True,
    ),
}
CUT_ALIKE = [*OBJECTIVES, "nll", "seq_sum"]
# These choose tokens or rows over the whole step, which `textbook.step_loss` is told.
BY_STATISTICS = [name for name, o in OBJECTIVES.items() if o.resolve().needs_statistics]


def make_rows(*, num_groups=3, group_size=4, seed=0):
    """Rows of uneven lengths, some tokens not trained, one row not trained at all."""
    generator = torch.Generator().manual_seed(seed)

    def draw(count, low=4, high=100):
        return torch.randint(low, high, (count,), generator=generator).tolist()

    rows = []
    for group in range(num_groups):
        prompt = draw(3 + 4 * group)
        for index in range(group_size):
            length = 1 + draw(1, 0, 9)[0]
            key = group * group_size + index
            rows.append(
                TrainRow(
                    key=key,
                    group=group,
                    prompt_ids=prompt,
                    response_ids=draw(length),
                    mask=[key != 5 and not (key == 2 and t == 0) for t in range(length)],
                    advantage=[1.0, -0.5, 0.25, -0.75][index],
                    sampling_logprobs=[-4.6 + 0.3 * math.cos(key + t) for t in range(length)],
                    kept_mass=[0.9] * length,
                )
            )
    tokens = Counter()
    for row in rows:
        tokens[row.group] += sum(row.mask)
    return [replace(row, group_tokens=tokens[row.group]) for row in rows]


CUTS = {
    "one padded batch": {"layout": "padded", "max_tokens": 10_000},
    "left padding": {"layout": "padded", "max_tokens": 10_000, "padding_side": "left"},
    "micro-batch 1": {"layout": "padded", "max_tokens": 10_000, "max_rows": 1},
    "micro-batch 2": {"layout": "padded", "max_tokens": 10_000, "max_rows": 2},
    "micro-batch 4": {"layout": "padded", "max_tokens": 10_000, "max_rows": 4},
    "packed": {"layout": "packed", "max_tokens": 10_000},
    "packed under a budget": {"layout": "packed", "max_tokens": 60},
    "packed on the left": {"layout": "packed", "max_tokens": 60, "padding_side": "left"},
    "packed, micro-batch 2": {"layout": "packed", "max_tokens": 10_000, "max_rows": 2},
    "shared prompt": {"layout": "shared_prompt", "max_tokens": 10_000},
    "shared prompt under a budget": {"layout": "shared_prompt", "max_tokens": 30},
    "shared prompt, micro-batch 4": {"layout": "shared_prompt", "max_tokens": 99, "max_rows": 4},
    "documents": {"layout": "documents", "max_tokens": 60},
    "documents, micro-batch 4": {"layout": "documents", "max_tokens": 10_000, "max_rows": 4},
    "shared documents": {"layout": "shared_documents", "max_tokens": 10_000},
    "shared documents under a budget": {"layout": "shared_documents", "max_tokens": 30},
}


def loss_for(name, totals):
    if name in ("nll", "seq_sum"):
        return supervised_loss(totals, loss=name, normalize_constant=3.0)
    return policy_gradient_loss(totals, OBJECTIVES[name].resolve(), max_length=MAX_LENGTH)


def make_rows_for(name, **sizes):
    """Rows that the objective can work with: some of a teacher's where it has teacher rows."""
    rows = make_rows(**sizes)
    objective = None if name in ("nll", "seq_sum") else OBJECTIVES[name].resolve()
    if objective is None or not objective.has_off_policy_rows:
        return rows
    return [with_teacher(row) if row.group != 1 else row for row in rows]


def with_teacher(row):
    """A whole trace, a beginning by the teacher, or the row as it is."""
    kind, length = row.key % 4, len(row.response_ids)
    off = [kind == 0 or (kind == 1 and t < length // 2) for t in range(length)]
    return replace(
        row,
        off_policy=off,
        recorded_logprobs=[-0.7 - 0.05 * t if o else math.nan for t, o in enumerate(off)],
        sampling_logprobs=[
            math.nan if o else v for o, v in zip(off, row.sampling_logprobs, strict=True)
        ],
    )


def reference_model(dtype=torch.float64):
    return tiny_model(TOKENIZER, dtype=dtype, seed=7)


def loss_and_gradient(rows, name, cut, *, dtype, old=True, attention="sdpa", marks=None):
    model = tiny_model(TOKENIZER, dtype=dtype)
    model.set_attn_implementation(attention)
    objective = None if name in ("nll", "seq_sum") else OBJECTIVES[name].resolve()
    batches = pack(rows, **cut)
    masked = objective is not None and objective.count_masked_rows
    update = Update(
        totals=step_totals(rows, Ranks(), count_masked_rows=masked), microbatches=batches
    )
    if objective is not None and objective.needs_reference:
        scores = score(reference_model(dtype), batches)
        batches = [
            replace(b, ref_logprobs=s.old_logprobs) for b, s in zip(batches, scores, strict=True)
        ]
    if old:  # old log-probabilities that differ from the current ones, by row and token
        batches = [
            replace(b, old_logprobs=s.old_logprobs + 0.3 * torch.sin(b.targets.double()).to(dtype))
            for b, s in zip(batches, score(model, batches), strict=True)
        ]
    update = replace(update, microbatches=batches)
    if objective is not None:
        update = step_statistics(
            update, objective, model, temperature=1.0, autocast=None, seed=5, ranks=Ranks()
        ).update
    if marks is not None:
        for batch in update.microbatches:
            for index, key in enumerate(batch.keys):
                for field in ("chosen", "kept", "mask"):
                    table = getattr(batch, field)
                    if table is not None:
                        marks.setdefault(field, {})[key] = table[index].tolist()
    outcome = policy_step(
        model,
        build_adamw(model),
        update.microbatches,
        loss_for(name, update.totals),
        max_grad_norm=0.0,
    )
    return outcome, {n: p.grad for n, p in model.named_parameters()}


def supervised_reference(rows, name, model):
    trained = [row for row in rows if any(row.mask)]
    total = torch.zeros((), dtype=torch.float64)
    for row in trained:
        table = torch.log_softmax(textbook.response_logits(model, row), -1)
        for t, token in enumerate(row.response_ids):
            if row.mask[t]:
                total = total - table[t, token]
    return total / (sum(sum(r.mask) for r in trained) if name == "nll" else 3.0 * len(trained))


def reference_loss(rows, name, marks):
    """The definition, one token at a time, with the model's own full logits, in float64."""
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    if name in ("nll", "seq_sum"):
        total = supervised_reference(rows, name, model)
    else:
        objective = OBJECTIVES[name].resolve()
        if objective.correction_renormalise:
            kept = marks["mask"]
            rows = [
                replace(r, mask=kept.get(r.key, [False] * len(r.mask))[: len(r.mask)]) for r in rows
            ]
        total = textbook.step_loss(
            rows,
            objective,
            model,
            max_length=MAX_LENGTH,
            reference=reference_model(),
            chosen=marks.get("chosen"),
            kept=marks.get("kept"),
        )
    total.backward()
    return total.item(), {n: p.grad for n, p in model.named_parameters()}


@pytest.mark.parametrize("name", CUT_ALIKE)
def test_a1c_a20a_every_cut_equals_the_definition_in_float64(name):
    rows = make_rows_for(name)
    marks = {}
    loss_and_gradient(rows, name, CUTS["one padded batch"], dtype=torch.float64, marks=marks)
    loss, gradients = reference_loss(rows, name, marks)
    for label, cut in CUTS.items():
        outcome, got = loss_and_gradient(rows, name, cut, dtype=torch.float64)
        assert outcome.loss == pytest.approx(loss, rel=1e-10, abs=1e-10), label
        for parameter, want in gradients.items():
            gap = (got[parameter] - want).abs().max() / want.abs().max().clamp(min=1e-30)
            assert gap < 1e-10, (label, parameter)


@pytest.mark.parametrize("name", BY_STATISTICS)
def test_what_is_chosen_over_the_step_is_a_part_of_it(name):
    rows = make_rows_for(name)
    marks = {}
    loss_and_gradient(rows, name, CUTS["packed"], dtype=torch.float64, marks=marks)
    objective = OBJECTIVES[name].resolve()
    num_tokens = sum(sum(row.mask) for row in rows)
    if objective.chooses_by_covariance:
        chosen = sum(map(sum, marks["chosen"].values()))
        assert chosen == max(int(objective.cov_share * num_tokens), 1) or name in PRESETS
    if objective.top_entropy_quantile < 1:
        assert sum(map(sum, marks["kept"].values())) == pytest.approx(0.4 * num_tokens, abs=1)
    if objective.correction_renormalise:
        assert 0 < sum(map(sum, marks["mask"].values())) < num_tokens


def test_bnpo_is_the_one_preset_that_depends_on_the_cut():
    rows = make_rows()
    objective = ObjectiveConfig(preset="bnpo").resolve()
    losses = []
    for max_rows in (None, 2):
        batches = pack(rows, layout="padded", max_tokens=10_000, max_rows=max_rows)
        totals = replace(step_totals(rows, Ranks()), num_microbatches=len(batches))
        model = tiny_model(TOKENIZER, dtype=torch.float64)
        loss = policy_gradient_loss(totals, objective, max_length=MAX_LENGTH)
        losses.append(policy_step(model, build_adamw(model), batches, loss).loss)
        if max_rows is None:
            trained = [row for row in rows if any(row.mask)]
            tokens = sum(sum(row.mask) for row in trained)
            assert losses[0] == pytest.approx(
                sum(-row.advantage * sum(row.mask) for row in trained) / tokens, abs=1e-12
            )
    assert abs(losses[0] - losses[1]) > 1e-3


@pytest.mark.parametrize("name", ["nll", *OBJECTIVES])
def test_a1c_every_cut_agrees_in_float32(name):
    rows = make_rows_for(name, seed=1)
    whole, reference = loss_and_gradient(rows, name, CUTS["one padded batch"], dtype=torch.float32)
    flat = torch.cat([g.flatten() for g in reference.values()]).double()
    for label, cut in CUTS.items():
        outcome, got = loss_and_gradient(rows, name, cut, dtype=torch.float32)
        assert outcome.loss == pytest.approx(whole.loss, rel=1e-6, abs=1e-6), label
        other = torch.cat([g.flatten() for g in got.values()]).double()
        assert (other - flat).norm() / flat.norm() < 2e-6, label


def test_row_order_does_not_matter():
    rows = make_rows()
    first, gradients = loss_and_gradient(rows, "grpo", CUTS["packed"], dtype=torch.float64)
    second, others = loss_and_gradient(rows[::-1], "grpo", CUTS["packed"], dtype=torch.float64)
    assert first.loss == pytest.approx(second.loss, abs=1e-12)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, others[name], rtol=0, atol=1e-12)


def test_eager_attention_takes_the_same_masks():
    rows = make_rows()
    for label in ("packed", "shared prompt", "left padding"):
        first, _ = loss_and_gradient(rows, "grpo", CUTS[label], dtype=torch.float64)
        second, _ = loss_and_gradient(
            rows, "grpo", CUTS[label], dtype=torch.float64, attention="eager"
        )
        assert first.loss == pytest.approx(second.loss, abs=1e-12)


@pytest.mark.parametrize("layout", ["packed", "shared_prompt"])
def test_a20b_a_row_does_not_see_its_neighbours(layout):
    rows = make_rows()
    model = tiny_model(TOKENIZER, dtype=torch.float64)

    def logprobs_by_key(rows):
        found = {}
        with torch.no_grad():
            for batch in pack(rows, layout=layout, max_tokens=10_000):
                scores = response_scores(model, batch).logprobs
                found |= {k: scores[i][batch.mask[i]] for i, k in enumerate(batch.keys)}
        return found

    before = logprobs_by_key(rows)
    changed = [
        replace(row, response_ids=[99 - t for t in row.response_ids]) if row.key == 0 else row
        for row in rows
    ]
    after = logprobs_by_key(changed)
    assert not torch.equal(before[0], after[0])
    for key in before:
        if key != 0:
            torch.testing.assert_close(before[key], after[key], rtol=0, atol=1e-13)


def test_a20d_positions_restart_and_shared_prompts_are_computed_once():
    rows = make_rows(num_groups=1, group_size=3)
    (batch,) = pack(rows, layout="shared_prompt", max_tokens=10_000)
    prompt = len(rows[0].prompt_ids)
    assert batch.input_ids.numel() == prompt + sum(len(row.response_ids) for row in rows)
    expected = list(range(prompt))
    for row in rows:
        expected += range(prompt, prompt + len(row.response_ids))
    assert batch.position_ids[0].tolist() == expected


def test_budgets_are_kept_and_nothing_is_lost():
    rows = make_rows(num_groups=6)
    for cut in CUTS.values():
        batches = pack(rows, **cut)
        keys = sorted(key for batch in batches for key in batch.keys)
        assert keys == [row.key for row in rows if any(row.mask)]
        for batch in batches:
            if len(batch.keys) > 1:
                assert batch.input_ids.numel() <= cut["max_tokens"]
            assert len(batch.keys) <= cut.get("max_rows", 10_000)
    tokens = sum(int(batch.mask.sum()) for batch in pack(rows, **CUTS["packed"]))
    assert tokens == step_totals(rows, Ranks()).num_tokens


def test_a7a_nothing_to_train_is_a_step_with_zero_gradients():
    rows = [replace(row, mask=[False] * len(row.mask)) for row in make_rows()]
    outcome, gradients = loss_and_gradient(
        rows, "grpo", CUTS["packed"], dtype=torch.float32, old=False
    )
    assert outcome.loss == 0.0
    assert outcome.grad_norm == 0.0
    assert not outcome.skipped
    assert all(g is not None and g.count_nonzero() == 0 for g in gradients.values())


def test_zero_advantage_rows_move_nothing():
    rows = [replace(row, advantage=0.0) if row.group == 1 else row for row in make_rows()]
    kept = [row for row in rows if row.group != 1]
    totals = step_totals(rows, Ranks())
    gradients = []
    for chosen in (rows, kept):
        model = tiny_model(TOKENIZER, dtype=torch.float64)
        policy_step(
            model,
            build_adamw(model),
            pack(chosen, **CUTS["packed"]),
            loss_for("grpo", totals),
            max_grad_norm=0.0,
        )
        gradients.append({n: p.grad for n, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=0, atol=1e-14)


def test_a8c_a_non_finite_gradient_skips_the_step():
    model = tiny_model(TOKENIZER)
    before = {n: p.clone() for n, p in model.named_parameters()}
    optimizer = build_adamw(model)
    set_learning_rate(optimizer, 0.1)

    def broken(scores, batch):
        return LossOutput(loss=scores.logprobs.sum() * math.nan)

    outcome = policy_step(model, optimizer, pack(make_rows(), **CUTS["packed"]), broken)
    assert outcome.skipped
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())


def test_clipping_bounds_the_norm_that_is_applied():
    rows = make_rows()
    model = tiny_model(TOKENIZER)
    optimizer = build_adamw(model)
    loss = loss_for("nll", step_totals(rows, Ranks()))
    outcome = policy_step(model, optimizer, pack(rows, **CUTS["packed"]), loss, max_grad_norm=0.01)
    norm = torch.sqrt(sum(p.grad.square().sum() for p in model.parameters()))
    assert outcome.grad_norm > 0.01
    assert norm.item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("max_grad_norm", [0.0, 0.01, 1e6])
def test_an_update_steered_on_the_device_is_the_same_update(max_grad_norm, monkeypatch):
    rows = make_rows()
    loss = loss_for("nll", step_totals(rows, Ranks()))
    weights, norms = [], []
    for steered in (False, True):
        monkeypatch.setattr(step, "_updates_on_device", lambda *_, answer=steered: answer)
        model = tiny_model(TOKENIZER)
        optimizer = build_adamw(model)
        set_learning_rate(optimizer, 1e-3)
        outcomes = [
            policy_step(
                model, optimizer, pack(rows, **CUTS["packed"]), loss, max_grad_norm=max_grad_norm
            )
            for _ in range(3)
        ]
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        norms.append([(one.loss, one.grad_norm, one.sums) for one in outcomes])
        assert optimizer.grad_scale is optimizer.found_inf is None
    torch.testing.assert_close(*weights, rtol=1e-5, atol=1e-6)
    for got, want in zip(*norms, strict=True):
        assert got[:2] == pytest.approx(want[:2], rel=1e-4)
        assert got[2] == pytest.approx(want[2], rel=1e-4)


@pytest.mark.parametrize("fault", ["nan", "too long"])
def test_an_update_steered_on_the_device_is_skipped_too(fault, monkeypatch):
    monkeypatch.setattr(step, "_updates_on_device", lambda *_: True)
    model = tiny_model(TOKENIZER)
    optimizer = build_adamw(model)
    set_learning_rate(optimizer, 0.1)
    batches = pack(make_rows(), **CUTS["packed"])
    sound = loss_for("nll", step_totals(make_rows(), Ranks()))
    policy_step(model, optimizer, batches, sound)
    before = {n: p.clone() for n, p in model.named_parameters()}
    moments = [{k: v.clone() for k, v in state.items()} for state in optimizer.state.values()]

    def broken(scores, batch):
        return LossOutput(loss=scores.logprobs.sum() * math.nan)

    loss, limit = (broken, None) if fault == "nan" else (sound, 1e-9)
    outcome = policy_step(model, optimizer, batches, loss, skip_above=limit)
    assert outcome.skipped
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())
    assert all(p.grad is None for p in model.parameters())
    for state, kept in zip(optimizer.state.values(), moments, strict=True):
        assert all(torch.equal(state[name], kept[name]) for name in kept)


def test_a_step_lowers_the_loss():
    rows = make_rows()
    model = tiny_model(TOKENIZER)
    optimizer = build_adamw(model)
    set_learning_rate(optimizer, 1e-2)
    loss = loss_for("nll", step_totals(rows, Ranks()))
    losses = [
        policy_step(model, optimizer, pack(rows, **CUTS["packed"]), loss).loss for _ in range(10)
    ]
    assert losses[-1] < 0.8 * losses[0]


def test_d8_updates_of_1e_6_are_not_lost():
    # D8: float32 weights keep a small update that bfloat16 ones would drop.
    weight = torch.nn.Parameter(0.02 * torch.randn(10_000, generator=torch.Generator()))
    start = weight.detach().mean().item()
    optimizer = torch.optim.SGD([weight], lr=1.0)
    for _ in range(1000):
        weight.grad = torch.full_like(weight, -1e-6)
        optimizer.step()
    assert weight.mean().item() - start == pytest.approx(1e-3, rel=0.05)


def test_a5b_scores_are_at_the_sampling_temperature():
    rows = make_rows()
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    (batch,) = pack(rows[:1], layout="padded", max_tokens=1000)
    ids = torch.tensor([[*rows[0].prompt_ids, *rows[0].response_ids]])
    for temperature in (0.6, 1.0, 1.3):
        logprobs = torch.log_softmax(model(ids).logits[0] / temperature, -1)
        want = logprobs[len(rows[0].prompt_ids) - 1 : -1].gather(
            -1, torch.tensor(rows[0].response_ids)[:, None]
        )
        got = response_scores(model, batch, temperature=temperature)
        torch.testing.assert_close(got.logprobs[0], want.squeeze(-1), rtol=0, atol=1e-12)


def test_bfloat16_runs_as_autocast_over_float32_weights():
    rows = make_rows()
    model = tiny_model(TOKENIZER)
    batches = pack(rows, **CUTS["packed"])
    optimizer = build_adamw(model)
    loss = loss_for("nll", step_totals(rows, Ranks()))
    outcome = policy_step(model, optimizer, batches, loss, autocast=torch.bfloat16)
    plain = policy_step(model, build_adamw(model), batches, loss)
    assert outcome.loss == pytest.approx(plain.loss, rel=2e-2)
    assert all(
        p.dtype == torch.float32 and p.grad.dtype == torch.float32 for p in model.parameters()
    )


def test_an_empty_prompt_is_refused():
    row = replace(make_rows()[0], prompt_ids=[])
    with pytest.raises(DataError, match="row 0 has an empty prompt"):
        pack([row], layout="padded", max_tokens=10)


def test_layout_follows_the_model():
    model = tiny_model(TOKENIZER)
    assert choose_layout(model, "auto", grouped=True) == "shared_prompt"
    assert choose_layout(model, "auto", grouped=False) == "packed"
    assert choose_layout(model, "padded", grouped=True) == "padded"
    model.config.layer_types = ["sliding_attention", "full_attention"]
    assert choose_layout(model, "auto", grouped=True) == "padded"
    with pytest.raises(ModelError, match="needs full attention in every layer"):
        choose_layout(model, "packed", grouped=True)


def test_a_head_that_does_something_else_is_refused():
    model = tiny_model(TOKENIZER)
    check_head(model)
    model.config.logit_scale = 0.5
    with pytest.raises(ModelError, match="changes its logits in a way"):
        check_head(model)


def test_learning_rate_schedules():
    rates = [
        learning_rate_at(s, 10, peak=2.0, schedule="cosine", warmup_steps=2) for s in range(11)
    ]
    assert rates[:3] == [0.0, 1.0, 2.0]
    assert rates[6] == pytest.approx(1.0)
    assert rates[10] == pytest.approx(0.0)
    assert learning_rate_at(5, 10, peak=2.0) == 2.0
    assert warmup_from(0, 0.1, 25) == 3
    assert warmup_from(4, 0.0, 25) == 4
