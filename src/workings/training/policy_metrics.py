"""What the optimizer steps of a rollout batch measured, by the names in the log."""

from __future__ import annotations

from collections.abc import Sequence

from workings.training.step import StepOutcome

TERMS = ("kl", "entropy", "sft")


def policy_metrics(outcomes: Sequence[StepOutcome]) -> dict[str, float]:
    """Metrics of a rollout batch's optimizer steps; terms that the objective has not are left out.

    "loss" is what was minimised; "policy_loss" its policy term alone, which is near 0 where the
    policy has not moved since the rollout. "kl" is estimated by k3, whatever the loss takes; so is
    "mismatch_kl", that of the sampler from the trainer before the first update.
    """

    def total(name: str) -> float:
        return sum(outcome.sums.get(name, 0.0) for outcome in outcomes)

    def largest(name: str) -> float:
        return max((outcome.maxima.get(name, 0.0) for outcome in outcomes), default=0.0)

    def per_step(name: str) -> float:
        return total(name) / max(len(outcomes), 1)

    def reported(name: str) -> bool:
        return any(name in outcome.sums for outcome in outcomes)

    count = max(len(outcomes), 1)
    tokens, scored = max(total("tokens"), 1.0), max(total("scored"), 1.0)
    own = max(total("own"), 1.0)
    clipped = total("clip_low") + total("clip_high") + total("clip_dual")
    metrics = {
        "loss": sum(outcome.loss for outcome in outcomes) / count,
        "policy_loss": per_step("loss/policy"),
        "grad_norm": sum(outcome.grad_norm for outcome in outcomes) / count,
        "skipped_steps": float(sum(outcome.skipped for outcome in outcomes)),
        "num_updates": float(len(outcomes)),
        "trained_tokens": total("tokens"),
        "token_entropy": total("entropy") / tokens,
        "clip_fraction": clipped / own,
        "clip_fraction/low": total("clip_low") / own,
        "clip_fraction/high": total("clip_high") / own,
        "ratio/mean": total("ratio") / own,
        "ratio/max": largest("ratio"),
        "mismatch_ratio/mean": total("mismatch") / own,
        "mismatch_ratio/max": largest("mismatch"),
        "mismatch_kl": total("mismatch_kl") / scored,
        "logprob_difference/mean": total("gap") / scored,
        "logprob_difference/max": largest("gap"),
    }
    metrics |= {
        f"{term}_loss": per_step(f"loss/{term}") for term in TERMS if reported(f"loss/{term}")
    }
    if reported("clip_dual"):
        metrics["clip_fraction/dual"] = total("clip_dual") / own
    if reported("kl"):
        metrics["kl"] = total("kl") / tokens
    if total("filtered"):
        metrics["filtered_token_fraction"] = total("filtered") / tokens
    if reported("chosen"):
        metrics["covariance_token_fraction"] = total("chosen") / tokens
    if reported("correction/num"):
        rows = max(total("correction/rows"), 1.0)
        metrics["correction/dropped_row_fraction"] = total("correction/dropped_rows") / rows
        metrics["correction/outside_fraction"] = total("correction/outside") / max(
            total("correction/num"), 1.0
        )
        metrics["correction/unscored_tokens"] = total("correction/unscored")
    if total("off_tokens"):
        off = total("off_tokens")
        metrics["off_policy/probability"] = total("off_probability") / off
        metrics["off_policy/logprob"] = total("off_logprob") / off
    return metrics
