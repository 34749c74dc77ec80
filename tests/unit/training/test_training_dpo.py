"""DPO: a step does not depend on its cutting, the reference is the start, resuming is exact."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from tiny import tiny_model, tiny_tokenizer
from workings.config.dpo import PREFERENCE_LOSSES, SMOOTHED_LOSSES, DPOConfig
from workings.data.encoding import encode_preferences
from workings.data.templates import load_template
from workings.errors import (
    AlreadyFinished,
    CheckpointError,
    DataError,
    StoppedBySignal,
    TrainingError,
)
from workings.models.lora import add_lora
from workings.objectives.preference import preference_loss
from workings.tracking.jsonl import read_metrics
from workings.tracking.recorder import Recorder
from workings.training.checkpointer import Checkpointer, RunPaths
from workings.training.distributed import Ranks
from workings.training.dpo import evaluate_pairs, train_dpo
from workings.training.optim import build_optimizer, set_learning_rate
from workings.training.pair_reference import (
    build_reference,
    hash_of_weights,
    reference_key,
    stored_reference,
)
from workings.training.pairs import pack_pairs, pair_rows, score_microbatches, score_pairs
from workings.training.preference_loss import (
    PairObjective,
    pair_metrics,
    pair_totals,
    partners_of_step,
    preference_step_loss,
)
from workings.training.step import policy_step
from workings.training.stop import StopRequest
from workings.types import PreferencePair

TOKENIZER = tiny_tokenizer()
OWN = load_template("own")
BETA = 0.3


def encoded(*triples):
    rows = [
        PreferencePair(id=f"set/{n}", question=question, chosen=chosen, rejected=rejected)
        for n, (question, chosen, rejected) in enumerate(triples)
    ]
    return encode_preferences(rows, OWN, TOKENIZER).items


def sums(count=24):
    """Pairs that a model can learn to order: greetings are better than shouting."""
    return encoded(
        *((f"{n}+{n + 1}?", f"hello {2 * n + 1}", f"NO {'X' * (n % 7)}") for n in range(count))
    )


PAIRS = encoded(
    ("1+1?", "two", "three and more"),
    ("hello", "a longer answer than the other", "no"),
    ("2", "4", "5"),
    ("what is 3+3?", "six.mm", "hello hello hello"),
    ("x", "", "empty is better"),
)
CUTS = {
    "pair by pair": {"layout": "padded", "max_tokens": 1},
    "padded": {"layout": "padded", "max_tokens": 10_000},
    "padded on the left": {"layout": "padded", "max_tokens": 300, "padding_side": "left"},
    "packed": {"layout": "packed", "max_tokens": 10_000},
    "packed under a budget": {"layout": "packed", "max_tokens": 150},
    "shared prompts": {"layout": "shared_prompt", "max_tokens": 10_000},
    "shared prompts, four rows": {"layout": "shared_prompt", "max_tokens": 500, "max_rows": 4},
    "shared on the left": {"layout": "shared_prompt", "max_tokens": 120, "padding_side": "left"},
    "documents": {"layout": "documents", "max_tokens": 150},
    "shared documents": {"layout": "shared_documents", "max_tokens": 300},
}


def packing(layout="shared_prompt", **cut):
    return lambda rows: pack_pairs(rows, **{"layout": layout, "max_tokens": 10_000, **cut})


def objective_of(name, **constants):
    smoothing = 0.1 if name in SMOOTHED_LOSSES else 0.0
    return PairObjective(
        terms={name: 1.0}, beta=BETA, **{"label_smoothing": smoothing, **constants}
    )


# ------------------------------------------------------------------------------------- packing


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_dpo_no_pair_is_split_and_no_budget_is_exceeded(cut):
    rows = pair_rows(PAIRS)
    batches = pack_pairs(rows, **cut)
    found = sorted(key for batch in batches for key in batch.keys)
    assert found == list(range(2 * len(PAIRS)))
    for batch in batches:
        places = [key // 2 for key in batch.keys]
        assert all(places.count(place) == 2 for place in places)
        alone = len(batch.keys) == 2
        assert alone or batch.input_ids.numel() <= cut["max_tokens"]
        assert alone or len(batch.keys) <= cut.get("max_rows", math.inf)


def test_dpo_the_rows_of_a_pair_share_one_prompt_in_memory():
    pair = PAIRS[3]
    (batch,) = pack_pairs(pair_rows([pair]), layout="shared_prompt", max_tokens=10_000)
    lengths = len(pair.chosen.response_ids) + len(pair.rejected.response_ids)
    assert batch.input_ids.numel() == len(pair.chosen.prompt.ids) + lengths


# ---------------------------------------------------------------------------- a step is a step


def row_logprobs(model, row):
    """log p of every response token from the model's own logits, in float64."""
    ids = torch.tensor([row.ids])
    everything = torch.log_softmax(model(ids).logits[0, :-1], -1)
    return everything.gather(-1, ids[0, 1:, None]).squeeze(-1)[len(row.prompt.ids) - 1 :]


def definition(model, reference, name, *, ld_alpha=1.0):
    """Loss and gradients by the table: all pairs at once, one row after the other."""
    chosen, rejected, plain, lengths, margins = [], [], [], [], []
    for pair in PAIRS:
        shared = min(len(pair.chosen.response_ids), len(pair.rejected.response_ids))
        weights, ours, theirs = [], [], []
        for row in (pair.chosen, pair.rejected):
            n = len(row.response_ids)
            weights.append(torch.tensor([1.0] * shared + [ld_alpha] * (n - shared)).double())
            ours.append(row_logprobs(model, row))
            with torch.no_grad():
                theirs.append(row_logprobs(reference, row))
        c, j = ((w * (a - b)).sum() for w, a, b in zip(weights, ours, theirs, strict=True))
        chosen.append(c)
        rejected.append(j)
        plain.append(ours[0].sum())
        lengths.append((len(ours[0]), len(ours[1])))
        margins.append((weights[0] * theirs[0]).sum() - (weights[1] * theirs[1]).sum())
    if name == "sft":
        loss = -torch.stack(plain).sum() / sum(n for n, _ in lengths)
    else:
        numbers = torch.tensor(lengths)
        loss = preference_loss(
            torch.stack(chosen),
            torch.stack(rejected),
            loss=name,
            beta=BETA,
            label_smoothing=0.1 if name in SMOOTHED_LOSSES else 0.0,
            chosen_lengths=numbers[:, 0],
            rejected_lengths=numbers[:, 1],
            ref_margins=torch.stack(margins),
        ).mean()
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


def step_of(model, reference, objective, cut):
    rows = pair_rows(PAIRS)
    batches = pack_pairs(rows, **cut)
    scored = score_microbatches(reference, batches, ld_alpha=objective.ld_alpha).discounted
    partners = None
    if objective.sorts:
        ours = score_microbatches(model, batches, ld_alpha=objective.ld_alpha).discounted
        partners = partners_of_step(ours, scored, Ranks())
    totals = pair_totals(
        [row.num_trained for row in rows[0::2]], [row.num_trained for row in rows[1::2]], Ranks()
    )
    outcome = policy_step(
        model,
        build_optimizer(model),
        batches,
        preference_step_loss(objective, scored, totals, partners=partners),
        max_grad_norm=0.0,
    )
    return outcome, {name: p.grad for name, p in model.named_parameters()}


def check_every_cut(name, **constants):
    def model():
        return tiny_model(TOKENIZER, dtype=torch.float64)

    reference = tiny_model(TOKENIZER, dtype=torch.float64, seed=1)
    value, gradients = definition(model(), reference, name, **constants)
    for cut in CUTS.values():
        outcome, found = step_of(model(), reference, objective_of(name, **constants), cut)
        assert outcome.loss == pytest.approx(value, abs=1e-10 * max(1.0, abs(value)))
        for parameter, gradient in gradients.items():
            scale = gradient.abs().max().item() or 1.0
            assert (found[parameter] - gradient).abs().max().item() <= 1e-10 * scale, parameter


@pytest.mark.parametrize("name", PREFERENCE_LOSSES)
def test_dpo_step_does_not_depend_on_how_it_is_cut(name):
    check_every_cut(name)


@pytest.mark.parametrize("name", ["sigmoid", "aot", "ipo"])
def test_dpo_step_with_discounted_lengths_does_not_depend_on_how_it_is_cut(name):
    check_every_cut(name, ld_alpha=0.25)


def test_dpo_several_terms_add_up_by_their_weights():
    reference = tiny_model(TOKENIZER, dtype=torch.float64, seed=1)
    alone = {}
    for name in ("sigmoid", "bco_pair", "sft"):
        model = tiny_model(TOKENIZER, dtype=torch.float64)
        alone[name], _ = definition(model, reference, name)
    weights = {"sigmoid": 0.8, "bco_pair": 0.2, "sft": 1.5}
    objective = PairObjective(terms=weights, beta=BETA)
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    outcome, _ = step_of(model, reference, objective, CUTS["packed under a budget"])
    assert outcome.loss == pytest.approx(sum(weights[name] * alone[name] for name in weights))
    metrics = pair_metrics(outcome.sums)
    assert {name: metrics[f"losses/{name}"] for name in weights} == pytest.approx(alone)


def test_dpo_metrics_by_hand():
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    reference = tiny_model(TOKENIZER, dtype=torch.float64, seed=1)
    found, _ = step_of(model, reference, objective_of("sigmoid"), CUTS["padded"])
    metrics = pair_metrics(found.sums)
    chosen, rejected, raw, ahead, preferred = [], [], [], [], []
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    with torch.no_grad():
        for pair in PAIRS:
            ours = [row_logprobs(model, row).sum().item() for row in (pair.chosen, pair.rejected)]
            theirs = [
                row_logprobs(reference, row).sum().item() for row in (pair.chosen, pair.rejected)
            ]
            chosen.append(BETA * (ours[0] - theirs[0]))
            rejected.append(BETA * (ours[1] - theirs[1]))
            ahead.append(chosen[-1] > rejected[-1])
            raw.append(ours)
            preferred.append(ours[0] > ours[1])
    n = len(PAIRS)
    expected = {
        "rewards/chosen": sum(chosen) / n,
        "rewards/rejected": sum(rejected) / n,
        "rewards/margins": (sum(chosen) - sum(rejected)) / n,
        "rewards/accuracies": sum(ahead) / n,
        "logps/chosen": sum(pair[0] for pair in raw) / n,
        "logps/rejected": sum(pair[1] for pair in raw) / n,
        "logps/accuracies": sum(preferred) / n,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)


def test_dpo_policy_equal_to_reference_is_log_two_with_accuracy_one_half():
    model = tiny_model(TOKENIZER)
    pack_rows = packing("padded", max_tokens=90)
    table = score_pairs(model, PAIRS, pack_rows=packing()).discounted
    found = evaluate_pairs(model, PAIRS, table, objective_of("sigmoid"), pack_rows=pack_rows)
    assert found["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert found["rewards/accuracies"] == 0.5
    assert found["logps/accuracies"] != 0.5


def test_dpo_ranks_find_the_partners_that_one_process_finds():
    """The collectives of two ranks, played by hand."""
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (torch.randn(5, 2, generator=generator).double() for _ in range(2))
    whole = partners_of_step(ours, theirs, Ranks())
    columns = iter(
        [*(ours - theirs).unbind(1), theirs[:, 0] - theirs[:, 1]]  # what the ranks hold together
    )

    class Second(Ranks):
        def all_objects(self, value):
            return [2, value]

        def all_concat(self, values):
            together = next(columns)
            assert torch.equal(together[2:], values)
            return together

    second = partners_of_step(ours[2:], theirs[2:], Second(rank=1, size=2))
    for name in ("ref_margins", "rejected", "chosen"):
        assert torch.equal(getattr(second, name), getattr(whole, name)[2:])


# ----------------------------------------------------------------------------------- reference


def lora_model(**options):
    model = tiny_model(TOKENIZER, **options)
    settings = {"rank": 4, "alpha": 8, "dropout": 0.0, "targets": ("q_proj", "down_proj")}
    return add_lora(model, **settings, seed=3).eval()


def trained_a_bit(model):
    """The model after some steps away from where it was."""
    optimizer = build_optimizer(model)
    set_learning_rate(optimizer, 0.05)
    totals = pair_totals([1], [1], Ranks())
    loss = preference_step_loss(objective_of("sigmoid"), torch.zeros(len(PAIRS), 2), totals)
    for _ in range(3):
        policy_step(model, optimizer, packing()(pair_rows(PAIRS)), loss)
    return model


def live_reference(model, *, ld_alpha=1.0):
    return build_reference(
        model,
        PAIRS,
        (),
        live=True,
        file=None,
        template="",
        pack_rows=packing(),
        ld_alpha=ld_alpha,
        autocast=None,
        log=lambda line: None,
        ranks=Ranks(),
    )


def test_dpo_the_adapter_switched_off_is_a_frozen_copy_of_the_base():
    base, model = tiny_model(TOKENIZER), lora_model()
    reference = live_reference(model)
    assert reference.live is not None
    assert not reference.live.is_copy
    trained_a_bit(model)
    batches = packing("packed", max_tokens=200)(pair_rows(PAIRS))
    wanted = score_microbatches(base, batches).discounted
    assert torch.equal(reference.of_step(range(len(PAIRS)), batches), wanted)
    assert not torch.allclose(score_microbatches(model, batches).discounted, wanted, atol=1e-2)
    assert all(p.requires_grad for name, p in model.named_parameters() if "lora_" in name)


@pytest.mark.parametrize("lora", [False, True], ids=["full", "trained adapter"])
def test_dpo_a_live_reference_stays_where_the_run_began(lora):
    model = trained_a_bit(lora_model()) if lora else tiny_model(TOKENIZER)
    reference = live_reference(model, ld_alpha=0.5)
    batches = packing()(pair_rows(PAIRS))
    before = score_microbatches(model, batches, ld_alpha=0.5).discounted
    trained_a_bit(model)
    assert torch.equal(reference.of_step(range(len(PAIRS)), batches), before)
    assert not torch.equal(score_microbatches(model, batches, ld_alpha=0.5).discounted, before)


def test_dpo_a_stored_reference_is_read_again_and_carries_its_key(tmp_path):
    model, file = tiny_model(TOKENIZER), tmp_path / "reference.safetensors"
    settings = {"template": "t", "autocast": None, "ld_alpha": 1.0}
    key = reference_key(model, PAIRS, **settings)
    scores, was_read = stored_reference(file, key, lambda: torch.arange(10.0).view(5, 2))
    assert not was_read
    again, was_read = stored_reference(file, key, lambda: pytest.fail("scored twice"))
    assert was_read
    assert torch.equal(scores, again)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    others = {
        "model": reference_key(tiny_model(TOKENIZER, seed=1), PAIRS, **settings),
        "template": reference_key(model, PAIRS, **{**settings, "template": "u"}),
        "rows": reference_key(model, PAIRS[:4], **settings),
        "arithmetic": reference_key(model, PAIRS, **{**settings, "ld_alpha": 0.5}),
    }
    for name, other in others.items():
        with pytest.raises(CheckpointError, match=rf"was scored with another {name}\n") as caught:
            stored_reference(file, other, lambda: pytest.fail("scored"))
        assert "another name=" in caught.value.hint
    two = replace(key, model="m", template="t")
    with pytest.raises(CheckpointError, match="another model and another template"):
        stored_reference(file, two, lambda: pytest.fail("scored"))


def test_dpo_a_damaged_reference_is_refused(tmp_path):
    file = tmp_path / "reference.safetensors"
    file.write_bytes(b"not tensors")
    key = reference_key(tiny_model(TOKENIZER), PAIRS, template="", autocast=None, ld_alpha=1.0)
    with pytest.raises(CheckpointError, match="cannot be read"):
        stored_reference(file, key, lambda: pytest.fail("scored"))


def test_dpo_the_hash_sees_every_weight():
    model = tiny_model(TOKENIZER)
    before = hash_of_weights(model)
    assert before == hash_of_weights(tiny_model(TOKENIZER))
    with torch.no_grad():
        model.model.norm.weight[0] += 1e-6
    assert hash_of_weights(model) != before
    assert hash_of_weights(model.bfloat16()) != before


# ---------------------------------------------------------------------------------- the loop


class Loop:
    """One run of the loop in a folder."""

    def __init__(self, folder, *, resume=None, model=None, stop_at=None, template="t", **settings):
        self.folder = folder
        self.config = DPOConfig.model_validate(
            {
                "name": "run",
                "model": {"name_or_path": "tiny"},
                "data": {"train": {"path": "p"}},
                "batch_size": 6,
                "epochs": 2,
                "optimizer": {"learning_rate": 0.01},
                **settings,
            }
        )
        self.model = tiny_model(TOKENIZER) if model is None else model
        self.stop = StopRequest()
        self.recorder = Recorder(folder)
        if stop_at is not None:
            record = self.recorder.record

            def record_and_stop(step, *arguments, **options):
                record(step, *arguments, **options)
                if step == stop_at:
                    self.stop.request()

            self.recorder.record = record_and_stop
        self.resume, self.template = resume, template

    def run(self, pairs=None, validation=None):
        rows = sums()
        with self.recorder:
            return train_dpo(
                self.config,
                model=self.model,
                pairs=rows[:20] if pairs is None else pairs,
                validation=rows[20:] if validation is None else validation,
                recorder=self.recorder,
                checkpointer=Checkpointer(
                    RunPaths(folder=self.folder),
                    TOKENIZER,
                    self.recorder,
                    kind="dpo",
                    config_text="",
                    resume=self.resume,
                ),
                stop=self.stop,
                reference_file=self.folder / "reference.safetensors",
                template=self.template,
                pad_id=TOKENIZER.pad_token_id,
            )


def recorded(folder, kind="train"):
    return [row for row in read_metrics(folder / "metrics.jsonl") if row["kind"] == kind]


def without_times(rows):
    slow = ("time", "train/step_time", "train/tokens_per_sec", "train/peak_memory_gb")
    return [{name: value for name, value in row.items() if name not in slow} for row in rows]


@pytest.mark.parametrize("loss", ["sigmoid", "aot_unpaired"])
@pytest.mark.parametrize("make", [tiny_model, None], ids=["full", "lora"])
def test_dpo_a_tiny_model_learns_to_prefer(tmp_path, make, loss):
    model = lora_model() if make is None else make(TOKENIZER)
    loop = Loop(tmp_path, model=model, loss=loss, evaluation={"every_steps": 4, "best": "accuracy"})
    result = loop.run()
    before, *_, after = recorded(tmp_path, "eval")
    assert before["eval/loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert before["eval/rewards/accuracies"] == 0.5
    assert after["eval/rewards/accuracies"] == 1.0
    assert after["eval/loss"] < 0.5
    assert result.state.step == 8
    assert result.state.best_value == 1.0
    assert result.evaluation["rewards/margins"] > 0.3
    first = recorded(tmp_path)[0]
    assert first["train/loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert first["train/rewards/accuracies"] == 0.5
    assert (tmp_path / "final").is_dir()
    assert (tmp_path / "best").is_dir()


def test_dpo_live_and_precomputed_references_give_one_run(tmp_path):
    runs = {}
    for reference in ("precomputed", "live"):
        loop = Loop(tmp_path / reference, reference=reference, max_steps=3)
        loop.run()
        runs[reference] = loop
    pair = (runs[name].model.state_dict().items() for name in runs)
    for (name, ours), (_, theirs) in zip(*pair, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-4, msg=name)
    assert (tmp_path / "precomputed" / "reference.safetensors").is_file()
    assert not (tmp_path / "live" / "reference.safetensors").exists()


@pytest.mark.parametrize(
    ("lora", "settings"),
    [
        (False, {"optimizer": {"learning_rate": 0.001, "name": "rmsprop"}}),
        (False, {"reference": "live"}),
        (True, {}),
        (True, {"loss": ["aot", "sft"], "reference": "live"}),
    ],
    ids=["full rmsprop", "full live", "lora", "lora live aot"],
)
def test_dpo_a_stopped_run_resumes_bitwise(tmp_path, settings, lora):
    def model():
        return lora_model() if lora else tiny_model(TOKENIZER)

    schedule = {"evaluation": {"every_steps": 2}, "checkpoint": {"keep_best": False}}
    schedule["max_steps"] = 5
    straight = Loop(tmp_path / "straight", model=model(), **schedule, **settings)
    straight.run()
    halted = Loop(tmp_path / "halted", model=model(), stop_at=3, **schedule, **settings)
    with pytest.raises(StoppedBySignal):
        halted.run()
    again = Loop(tmp_path / "halted", model=model(), resume="latest", **schedule, **settings)
    again.run()
    name = "adapter_model.safetensors" if lora else "model.safetensors"
    ours, theirs = (load_file(tmp_path / run / "final" / name) for run in ("straight", "halted"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    for kind in ("train", "eval"):
        wanted, found = (recorded(tmp_path / run, kind) for run in ("straight", "halted"))
        assert without_times(wanted) == without_times(found)
    with pytest.raises(AlreadyFinished):
        Loop(tmp_path / "halted", model=model(), resume="latest", **schedule, **settings).run()


def test_dpo_a_run_is_not_resumed_with_another_model_or_template(tmp_path):
    halted = Loop(tmp_path, stop_at=2)
    with pytest.raises(StoppedBySignal):
        halted.run()
    with pytest.raises(CheckpointError, match=r"another model\n"):
        Loop(tmp_path, resume="latest", model=tiny_model(TOKENIZER, seed=5)).run()
    with pytest.raises(CheckpointError, match=r"another template\n"):
        Loop(tmp_path, resume="latest", template="other").run()
    with pytest.raises(CheckpointError, match=r"another rows\n"):
        Loop(tmp_path, resume="latest").run(pairs=sums()[1:20])


def test_dpo_a_trained_adapter_is_its_own_reference(tmp_path):
    model = trained_a_bit(lora_model())
    start = copy.deepcopy(model)
    Loop(tmp_path, model=model, max_steps=2).run()
    assert recorded(tmp_path)[0]["train/loss"] == pytest.approx(math.log(2), abs=1e-5)
    stored = load_file(tmp_path / "reference.safetensors")["logprobs"]
    wanted = score_pairs(start, sums()[:20], pack_rows=packing()).discounted
    torch.testing.assert_close(stored[:20], wanted, rtol=0, atol=1e-4)


def test_dpo_the_best_model_is_that_of_the_lowest_validation_loss(tmp_path):
    checkpoint = {"keep_best": False}
    settings = {"every_steps": 1, "best": "loss"}
    result = Loop(tmp_path, evaluation=settings, checkpoint=checkpoint).run()
    losses = {row["step"]: row["eval/loss"] for row in recorded(tmp_path, "eval")}
    assert min(losses) == 0
    assert result.state.best_step == min(losses, key=losses.get)
    assert -result.state.best_value == min(losses.values())


def test_dpo_the_best_model_is_the_start_where_training_makes_it_worse(tmp_path):
    settings = {"every_steps": 1, "best": "loss"}
    # Validation pairs that prefer what the trained ones reject.
    turned = [replace(pair, chosen=pair.rejected, rejected=pair.chosen) for pair in sums()[:20]]
    loop = Loop(tmp_path, evaluation=settings)
    start = copy.deepcopy(loop.model.state_dict())
    result = loop.run(validation=turned)
    assert result.state.best_step == 0
    assert json.loads((tmp_path / "best/best.json").read_text())["step"] == 0
    best = load_file(tmp_path / "best/model.safetensors")
    assert all(torch.equal(tensor, start[name]) for name, tensor in best.items())


def test_dpo_steps_that_are_not_finite_are_skipped_and_end_the_run(tmp_path):
    model = tiny_model(TOKENIZER)
    settings = {"learning_rate": 0.01, "max_nonfinite_steps": 2}
    loop = Loop(tmp_path, model=model, optimizer=settings)
    table = torch.full((24, 2), math.nan)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    key = reference_key(model, sums(), template="t", autocast=None, ld_alpha=1.0)
    stored_reference(tmp_path / "reference.safetensors", key, lambda: table)
    with pytest.raises(TrainingError, match="not finite in 2 steps in a row"):
        loop.run()
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert recorded(tmp_path)[0]["train/skipped_steps"] == 1.0


def test_dpo_steps_with_too_long_a_gradient_are_skipped(tmp_path):
    settings = {"learning_rate": 0.01, "skip_above_grad_norm": 1e-9}
    Loop(tmp_path, optimizer=settings, max_steps=1).run()
    (row,) = recorded(tmp_path)
    assert row["train/skipped_steps"] == 1.0
    assert row["train/grad_norm"] > 1e-9


def test_dpo_no_validation_pairs_means_no_evaluation(tmp_path):
    result = Loop(tmp_path, evaluation={"every_steps": 1}, max_steps=2).run(validation=())
    assert result.evaluation == {}
    assert recorded(tmp_path, "eval") == []


def test_dpo_sorting_losses_refuse_a_step_of_one_pair(tmp_path):
    with pytest.raises(DataError, match="the last batch of 13 pairs in batches of 6") as caught:
        Loop(tmp_path / "a", loss="aot").run(pairs=sums()[:13])
    assert caught.value.hint.startswith("set data.train.limit=12")
    with pytest.raises(DataError, match="one validation pair"):
        Loop(tmp_path / "b", loss="aot").run(validation=sums()[20:21])
    Loop(tmp_path / "c", loss="aot", max_steps=2).run(pairs=sums()[:13])


def test_dpo_rmsprop_is_torchs_own():
    model, twin = tiny_model(TOKENIZER), tiny_model(TOKENIZER)
    ours = build_optimizer(model, name="rmsprop", rmsprop_alpha=0.9, eps=1e-6)
    theirs = torch.optim.RMSprop(twin.parameters(), lr=0.01, alpha=0.9, eps=1e-6)
    set_learning_rate(ours, 0.01)
    for step in range(3):
        for one in (model, twin):
            for p in one.parameters():
                p.grad = torch.full_like(p, 0.1 * (step + 1))
        ours.step()
        theirs.step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q)
    with pytest.raises(ValueError, match="unknown optimizer 'sgd'"):
        build_optimizer(model, name="sgd")
    with pytest.raises(ValueError, match=r"weight_decay=0\.1"):
        build_optimizer(model, name="rmsprop", weight_decay=0.1)
