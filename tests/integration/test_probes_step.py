"""Probes of the way from rows to one optimizer step, each against the definition on full logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tiny import tiny_model, tiny_tokenizer
from workings import (
    Problem,
    Prompt,
    Rollout,
    RolloutGroup,
    pack,
    policy_gradient_loss,
    policy_step,
    score,
    step_totals,
    supervised_loss,
)
from workings.config.objective_settings import ObjectiveConfig
from workings.training.distributed import Ranks
from workings.training.forward import response_scores
from workings.training.packing import Layout, TrainRow
from workings.training.step import LossFunction, StepOutcome

TOKENIZER = tiny_tokenizer()
LAYOUTS: tuple[Layout, ...] = (
    *("padded", "packed", "shared_prompt"),
    *("documents", "shared_documents"),
)


def row(key: int, length: int, *, advantage: float = 1.0, prompt: Sequence[int] = ()) -> TrainRow:
    """A row of `length` trained tokens."""
    return TrainRow(
        key=key,
        group=key,
        prompt_ids=tuple(prompt) or (10 + key, 11, 12),
        response_ids=tuple(20 + (7 * key + 3 * t) % 60 for t in range(length)),
        mask=(True,) * length,
        advantage=advantage,
        sampling_logprobs=(-4.0,) * length,
        kept_mass=(1.0,) * length,
    )


def full_logprobs(model: torch.nn.Module, example: TrainRow) -> Tensor:
    """Log-probabilities of the response, from the model's own logits for this row alone."""
    ids = torch.tensor([[*example.prompt_ids, *example.response_ids]])
    logprobs = torch.log_softmax(model(input_ids=ids).logits[0], -1)
    start = len(example.prompt_ids)
    return logprobs[start - 1 : -1].gather(-1, ids[0, start:, None]).squeeze(-1)


def step_of(
    rows: Sequence[TrainRow],
    loss: Callable[..., LossFunction],
    *,
    layout: Layout = "packed",
    max_rows: int | None = None,
) -> tuple[StepOutcome, list[Tensor]]:
    """The outcome and the gradients of one step on a fresh model, in float64, without clipping."""
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
    batches = pack(rows, layout=layout, max_tokens=200, max_rows=max_rows)
    outcome = policy_step(
        model, optimizer, batches, loss(step_totals(rows, Ranks())), max_grad_norm=0.0
    )
    return outcome, [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("max_rows", [1, 2, 3])
@pytest.mark.parametrize("kind", ["supervised", "policy"])
def test_a1e_the_logged_loss_is_the_one_whose_gradient_is_taken(kind: str, max_rows: int) -> None:
    """A small step along the gradient lowers the logged loss by rate x norm squared."""
    rows = [row(0, 2), row(1, 6, advantage=-1.0), row(2, 3, advantage=0.5)]
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    rate = 1e-7
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    totals = step_totals(rows, Ranks())
    batches = pack(rows, layout="padded", max_tokens=200, max_rows=max_rows)
    if kind == "policy":
        batches = score(model, batches)
        loss = policy_gradient_loss(
            totals, ObjectiveConfig(reduction="token_mean").resolve(), max_length=8
        )
    else:
        loss = supervised_loss(totals)
    first = policy_step(model, optimizer, batches, loss, max_grad_norm=0.0)
    second = policy_step(model, optimizer, batches, loss, max_grad_norm=0.0)
    assert first.loss - second.loss == pytest.approx(rate * first.grad_norm**2, rel=1e-4)


@pytest.mark.parametrize("pad_id", [0, 7, TOKENIZER.eos_token_id])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a2b_a_prompt_that_holds_the_padding_id_attends_to_it(layout: Layout, pad_id: int) -> None:
    """The padding id stands inside a prompt, and rows of other lengths make padding needed."""
    rows = [row(0, 2, prompt=(5, pad_id, pad_id, 6)), row(1, 6), row(2, 3, prompt=(pad_id, 8))]
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    with torch.no_grad():
        for batch in pack(rows, layout=layout, max_tokens=200, pad_id=pad_id):
            got = response_scores(model, batch).logprobs
            for place, key in enumerate(batch.keys):
                wanted = full_logprobs(model, rows[key])
                torch.testing.assert_close(
                    got[place, : len(wanted)], wanted, rtol=0, atol=1e-12, check_dtype=False
                )


def test_d14_the_length_normalisations_differ_on_rows_of_two_and_six_tokens() -> None:
    """Advantages +1 and -1, ratio 1, limit 8; the same however the step is cut."""
    rows = [row(0, 2), row(1, 6, advantage=-1.0)]
    wanted = {"seq_mean_token_mean": 0.0, "token_mean": 0.5, "seq_mean_token_sum_norm": 0.25}
    for max_rows in (1, 2):
        losses = {}
        for reduction in wanted:
            outcome, _ = step_of(
                rows,
                lambda totals, reduction=reduction: policy_gradient_loss(  # type: ignore[misc]
                    totals,
                    ObjectiveConfig(preset="grpo_no_clip", reduction=reduction).resolve(),
                    max_length=8,
                ),
                max_rows=max_rows,
            )
            losses[reduction] = outcome.loss
        assert losses == pytest.approx(wanted, abs=1e-12)


def tool_rollout(ids: Sequence[int], tool: Sequence[int]) -> Rollout:
    """A rollout in which the tokens at the places `tool` were written by a tool."""
    sampled = [place not in tool for place in range(len(ids))]
    return Rollout(
        ids=ids,
        sampling_logprobs=[-4.0 if own else float("nan") for own in sampled],
        kept_mass=[1.0] * len(ids),
        mask=sampled,
        off_policy=[False] * len(ids),
        text="",
        finish_reason="eos",
        weight_version=0,
    )


def rows_of(group: RolloutGroup) -> list[TrainRow]:
    return [
        TrainRow(
            key=key,
            group=0,
            prompt_ids=group.prompt.ids,
            response_ids=rollout.ids,
            mask=rollout.mask,
            advantage=(1.0, -0.5)[key],
            sampling_logprobs=rollout.sampling_logprobs,
            kept_mass=rollout.kept_mass,
        )
        for key, rollout in enumerate(group.rollouts)
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a17c_tokens_of_tools_are_read_and_not_trained(layout: Layout) -> None:
    """Loss and gradient are the definition's with the sum over own tokens alone."""
    prompt = Prompt(problem=Problem(id="p", question="?", answer="1"), ids=(9, 10, 11), text="")
    first = tool_rollout([30, 31, 50, 51, 52, 32, 33], tool=(2, 3, 4))
    second = tool_rollout([40, 53, 41], tool=(1,))
    rows = rows_of(RolloutGroup(prompt=prompt, rollouts=(first, second)))
    outcome, gradients = step_of(
        rows,
        lambda totals: policy_gradient_loss(
            totals,
            ObjectiveConfig(
                preset="no_baseline", reduction="token_mean", correction="tis_token"
            ).resolve(),
            max_length=8,
        ),
        layout=layout,
    )
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for example in rows:
        logprobs = full_logprobs(model, example)
        weight = (logprobs.detach() + 4.0).exp().clamp(max=2.0)
        total = total - (example.advantage * weight * logprobs)[torch.tensor(example.mask)].sum()
    (total / 6).backward()
    assert outcome.sums["tokens"] == 6
    assert outcome.loss == pytest.approx(total.item() / 6, rel=1e-10)
    for got, parameter in zip(gradients, model.parameters(), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(got, parameter.grad, rtol=0, atol=1e-12)
    # What the tool wrote does matter as context: the own tokens after it depend on it.
    other = replace(rows[0], response_ids=[30, 31, 54, 51, 52, 32, 33])
    before, after = full_logprobs(model, rows[0]), full_logprobs(model, other)
    torch.testing.assert_close(before[:2], after[:2], rtol=0, atol=1e-12)
    assert (before[5:] - after[5:]).abs().max() > 1e-6
