"""Group advantages and a policy loss by hand: hops 4 and 6 of a batch, without a model.

python examples/advantages_and_loss.py
"""

from __future__ import annotations

import torch

from workings import (
    StepTotals,
    group_advantages,
    level_log_ratio,
    sft_loss,
    surrogate_loss,
    token_weights,
    weighted_loss,
)

REDUCTIONS = (
    "seq_mean_token_mean",
    "token_mean",
    "seq_mean_token_sum_norm",
    "seq_mean_token_sum",
)


def main() -> None:
    """Print advantages, the four losses of one step, and the loss that must not be averaged."""
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    print("rewards     ", rewards.tolist())
    for estimator in ("raw", "group_mean", "group"):
        advantages = group_advantages(rewards, estimator=estimator)
        rounded = [[round(value, 3) for value in line] for line in advantages.tolist()]
        print(f"{estimator:12} {rounded}")

    # Two completions of 2 and 6 tokens with advantages +1 and -1, sampled with these very weights:
    # the ratio is 1, so the loss of a token is minus its advantage.
    mask = torch.arange(6) < torch.tensor([[2], [6]])
    logprobs = torch.full((2, 6), -1.5, requires_grad=True)
    advantages = torch.tensor([[1.0], [-1.0]])
    old_logprobs = logprobs.detach()
    per_token = surrogate_loss(
        logprobs,
        old_logprobs,
        level_log_ratio(logprobs, old_logprobs, mask, level="token"),
        advantages,
        surrogate="ppo_clip",
        epsilon=0.2,
    )
    totals = StepTotals(num_rows=2, num_tokens=8)
    for reduction in REDUCTIONS:
        weights = token_weights(mask, totals, reduction=reduction, max_length=8)
        loss = weighted_loss(per_token, weights)
        (gradient,) = torch.autograd.grad(loss, logprobs, retain_graph=True)
        print(f"{reduction:24} loss {loss.item():5.2f}  |gradient| {gradient.norm().item():.3f}")

    # One row of one token, one of three. Each microbatch adds its share of the step's loss.
    rows = torch.tensor([[-4.0, 0.0, 0.0], [-1.0, -1.0, -1.0]])
    mask = torch.tensor([[True, False, False], [True, True, True]])
    totals = StepTotals(num_rows=2, num_tokens=4)
    whole = sft_loss(rows, mask, totals)
    parts = [sft_loss(rows[i : i + 1], mask[i : i + 1], totals) for i in range(2)]
    print(f"SFT loss at once {whole.item()}, in two microbatches {sum(parts).item()}")


if __name__ == "__main__":
    main()
