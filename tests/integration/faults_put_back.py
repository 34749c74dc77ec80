"""Known faults as switchable patches of the library, each with the probe that has to notice it.

A patch replaces a function wherever the library or the probe holds a reference to it, and puts
back what was written wrongly elsewhere: the mean of micro-batch means, a mask by token id, a
temperature on one side only.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from tiny import tiny_tokenizer
from workings.config.grpo import GRPOConfig
from workings.data import encoding, order, sampler
from workings.objectives import logprobs, masked, policy, reductions, supervised
from workings.rollout import collect
from workings.rollout.transformers_engine import TransformersEngine
from workings.training import credit, distributed, draw, forward, packing, sft, step
from workings.training.distributed import Ranks, Totals

EOS_ID = tiny_tokenizer().eos_token_id


class Patch:
    """Switches faults on until the test ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def replace(self, function: Any, make: Callable[[Any], Any]) -> None:
        """`make(function)` in place of `function` in every module of the library and the tests."""
        faulty = functools.wraps(function)(make(function))
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None) or ""
            if "workings" in module.__name__ or "/tests/" in file:
                for name, value in list(vars(module).items()):
                    if value is function:
                        self._monkeypatch.setattr(module, name, faulty)

    def set(self, owner: object, name: str, value: Any) -> None:
        """Another value for an attribute."""
        self._monkeypatch.setattr(owner, name, value)

    def constant(self, name: str, value: Any) -> None:
        """Another value for a constant, wherever it was imported to."""
        for key, module in list(sys.modules.items()):
            if key.startswith("workings.") and hasattr(module, name):
                self._monkeypatch.setattr(module, name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault, the probe that is for it, and the test with the arguments that show it.

    `test` is "folder/file.py::function" below tests/. With `on_ranks` the fault is put back in the
    rank processes, which the test asks for by its argument `pool`.
    """

    probe: str
    what: str
    put_back: Callable[[Patch], None]
    test: str
    arguments: dict[str, Any] = field(default_factory=dict)
    on_ranks: bool = False


# -------------------------------------------------------------------------------- normalisation


def _own(totals: Any, mask: Any) -> Any:
    """Counts of the micro-batch in place of those of the step."""
    return dataclasses.replace(totals, num_rows=mask.shape[0], num_tokens=max(int(mask.sum()), 1))


def mean_of_microbatch_means(patch: Patch) -> None:
    def make(function: Any) -> Any:
        return lambda mask, totals, **options: function(mask, _own(totals, mask), **options)

    patch.replace(reductions.token_weights, make)


def supervised_mean_of_means(patch: Patch) -> None:
    def make(function: Any) -> Any:
        return lambda lp, mask, totals, **options: function(lp, mask, _own(totals, mask), **options)

    patch.replace(supervised.sft_loss, make)


def nominal_batch_size(patch: Patch) -> None:
    def make(function: Any) -> Any:
        def nominal(rows: Any, ranks: Ranks) -> Any:
            totals = function(rows, ranks)
            return dataclasses.replace(totals, num_tokens=2 * totals.num_tokens)

        return nominal

    patch.replace(packing.step_totals, make)


def logged_loss_divided_by_accumulation(patch: Patch) -> None:
    def make(function: Any) -> Any:
        def divided(model: Any, optimizer: Any, batches: Any, *others: Any, **options: Any) -> Any:
            outcome = function(model, optimizer, batches, *others, **options)
            return dataclasses.replace(outcome, loss=outcome.loss / len(batches))

        return divided

    patch.replace(step.policy_step, make)


def constant_is_the_own_token_count(patch: Patch) -> None:
    def make(function: Any) -> Any:
        def pooled(mask: Any, totals: Any, *, reduction: str, **options: Any) -> Any:
            if reduction != "seq_mean_token_sum_norm":
                return function(mask, totals, reduction=reduction, **options)
            return function(mask, _own(totals, mask), reduction="token_mean", **options)

        return pooled

    patch.replace(reductions.token_weights, make)


# ------------------------------------------------------------------------------------------ EOS


def labels_masked_by_id(patch: Patch) -> None:
    def by_id(self: encoding.EncodedDemonstration) -> tuple[bool, ...]:
        response = tuple(token != EOS_ID for token in self.response_ids)
        return (False,) * len(self.prompt.ids) + response

    patch.set(encoding.EncodedDemonstration, "mask", property(by_id))


def attention_masked_by_id(patch: Patch) -> None:
    pad_id = 7

    def make(function: Any) -> Any:
        def by_id(model: Any, batch: Any, **options: Any) -> Any:
            width = batch.input_ids.shape[1]
            seen = torch.ones(width, width, dtype=torch.bool).tril()[None, None]
            if batch.attention_mask is not None:
                seen = batch.attention_mask
            seen = (seen & (batch.input_ids != pad_id)[:, None, None]) | torch.eye(width).bool()
            return function(model, dataclasses.replace(batch, attention_mask=seen), **options)

        return by_id

    patch.replace(forward.response_scores, make)


def rows_masked_by_id(patch: Patch) -> None:
    def make(function: Any) -> Any:
        def by_id(example: Any, key: int, **options: Any) -> Any:
            row = function(example, key, **options)
            return dataclasses.replace(row, mask=[token != EOS_ID for token in row.response_ids])

        return by_id

    patch.replace(sft.demonstration_row, make)


def eos_after_truncation(patch: Patch) -> None:
    def make(function: Any) -> Any:
        def ended(*arguments: Any, **options: Any) -> Any:
            row = function(*arguments, **options)
            if not row.truncated:
                return row
            return dataclasses.replace(row, response_ids=(*row.response_ids, EOS_ID))

        return ended

    patch.replace(encoding.encode_demonstration, make)


# ---------------------------------------------------------------------------- engine and trainer


def temperature_not_mirrored(patch: Patch) -> None:
    def make(function: Any) -> Any:
        def at_one(*arguments: Any, temperature: float = 1.0, **options: Any) -> Any:
            return function(*arguments, **options)

        return at_one

    patch.replace(logprobs.token_logprobs, make)


def truncation_not_mirrored(patch: Patch) -> None:
    generate = TransformersEngine.generate

    def whole(self: Any, requests: Any, sampling: Any) -> Any:
        return [
            [dataclasses.replace(s, kept_mass=[1.0] * len(s.ids)) for s in samples]
            for samples in generate(self, requests, sampling)
        ]

    patch.set(TransformersEngine, "generate", whole)


def kernel_ignores_temperature_in_its_gradient(patch: Patch) -> None:
    def unscaled(self: Any, grad: Any, hidden: Any) -> Any:
        return grad.to(hidden.dtype)

    patch.set(logprobs._Head, "grad_raw_logits", unscaled)


def engine_never_synced(patch: Patch) -> None:
    patch.set(TransformersEngine, "load_weights", lambda self, version, tensors: None)


def engine_never_synced_and_nobody_checks(patch: Patch) -> None:
    engine_never_synced(patch)
    patch.set(collect, "_check", lambda *arguments: None)


def nobody_checks_the_version(patch: Patch) -> None:
    patch.set(collect, "_check", lambda *arguments: None)


# --------------------------------------------------------------------- masks, overflow, gradients


def masked_by_multiplication(patch: Patch) -> None:
    def make_loss(function: Any) -> Any:
        return lambda token_loss, weights, correction=None: (weights * token_loss).sum()

    def make_sum(function: Any) -> Any:
        return lambda values, mask, dim=None: (mask * values).sum()

    patch.replace(policy.weighted_loss, make_loss)
    patch.replace(masked.masked_sum, make_sum)


def nothing_clamped_before_exp(patch: Patch) -> None:
    patch.constant("MAX_LOG_RATIO", math.inf)


def non_finite_gradients_are_applied(patch: Patch) -> None:
    def make(function: Any) -> Any:
        def norm(*arguments: Any) -> float:
            value = float(function(*arguments))
            return value if math.isfinite(value) else 1.0

        return norm

    patch.replace(step._clipped_norm, make)


def gradients_stay_on_their_rank(patch: Patch) -> None:
    patch.replace(distributed.average_gradients, lambda function: lambda *a, **options: None)


def one_collective_for_each_name(patch: Patch) -> None:
    """A rank without a microbatch has no names, and leaves the others waiting."""

    def make(function: Any) -> Any:
        def by_name(totals: Totals, ranks: Ranks) -> Totals:
            def total(value: float) -> float:
                return float(ranks.all_sum(torch.tensor(value)))

            sums = {name: total(value) for name, value in totals.sums.items()}
            return dataclasses.replace(totals, loss=total(totals.loss), sums=sums)

        return by_name

    patch.replace(distributed.merge_totals, make)


# --------------------------------------------------------------------------------------- grouping


def drawn_with_replacement(patch: Patch) -> None:
    def make(function: Any) -> Any:
        def drawn(num_rows: int, *, seed: int, epoch: int = 0) -> tuple[int, ...]:
            generator = torch.Generator().manual_seed(seed + epoch)
            return tuple(torch.randint(num_rows, (num_rows,), generator=generator).tolist())

        return drawn

    patch.replace(order.epoch_order, make)


def rewards_of_different_prompts_mixed(patch: Patch) -> None:
    def make(function: Any) -> Any:
        def mixed(groups: Any) -> Any:
            rewards, valid = function(groups)
            return rewards.T.reshape(rewards.shape), valid

        return mixed

    patch.replace(credit.reward_table, make)


def rows_filtered_one_by_one(patch: Patch) -> None:
    """What a reward of 0 stands for is dropped, and the group with it is judged by the rest."""

    def make(function: Any) -> Any:
        def judged(group: Any, *components: Any) -> bool:
            rows = tuple(rollout for rollout in group.rollouts if rollout.reward)
            return bool(function(dataclasses.replace(group, rollouts=rows), *components))

        return judged

    patch.replace(draw.is_informative, make)


def gold_of_the_row_before(patch: Patch) -> None:
    at = sampler.PromptSampler._at

    def shifted(self: Any, cursor: int) -> Any:
        prompt, other = at(self, cursor), at(self, cursor + 1)
        problem = dataclasses.replace(prompt.problem, answer=other.problem.answer)
        return dataclasses.replace(prompt, problem=problem)

    patch.set(sampler.PromptSampler, "_at", shifted)


def sizes_rounded_in_silence(patch: Patch) -> None:
    patch.set(GRPOConfig, "rows_per_update", property(lambda self: self.rollout_batch_size))


FORMULAS = "unit/objectives/test_objectives_formulas.py"
KERNEL = "unit/objectives/test_objectives_logprobs.py"
ENCODING = "unit/data/test_data_encoding.py"
STEP = "unit/training/test_training_step.py"
PROBES = "integration/test_probes.py"
PROBES_OF_A_STEP = "integration/test_probes_step.py"
TWO_RANKS = "integration/test_two_ranks.py"
SAMPLER = "unit/data/test_data_sampler.py"

FAULTS: tuple[Fault, ...] = (
    Fault(
        probe="A1a",
        what="mean of micro-batch means",
        put_back=supervised_mean_of_means,
        test=f"{FORMULAS}::test_e27_a1a_sft_loss_is_1_75",
        arguments={"split": [[0], [1]]},
    ),
    Fault(
        probe="A1b",
        what="mean of micro-batch means",
        put_back=mean_of_microbatch_means,
        test=f"{FORMULAS}::test_e8_a1b_reductions_in_one_and_two_microbatches",
        arguments={"reduction": "token_mean", "split": [[0], [1]]},
    ),
    Fault(
        probe="A1c",
        what="mean of micro-batch means",
        put_back=mean_of_microbatch_means,
        test=f"{STEP}::test_a1c_every_cut_agrees_in_float32",
        arguments={"name": "grpo"},
    ),
    Fault(
        probe="A1d",
        what="a short batch divided by the nominal size",
        put_back=nominal_batch_size,
        test=f"{PROBES}::test_a1d_a1e_a_short_last_batch_has_its_own_count_in_the_logged_loss",
    ),
    Fault(
        probe="A1e",
        what="the logged loss divided by the accumulation once more",
        put_back=logged_loss_divided_by_accumulation,
        test=f"{PROBES_OF_A_STEP}::test_a1e_the_logged_loss_is_the_one_whose_gradient_is_taken",
        arguments={"kind": "supervised", "max_rows": 1},
    ),
    Fault(
        probe="A2a",
        what="labels masked by the padding id",
        put_back=labels_masked_by_id,
        test=f"{ENCODING}::test_a2a_eos_is_in_the_mask_also_as_padding",
        arguments={"pad_is_eos": True},
    ),
    Fault(
        probe="A2b",
        what="attention masked by the padding id",
        put_back=attention_masked_by_id,
        test=f"{PROBES_OF_A_STEP}::test_a2b_a_prompt_that_holds_the_padding_id_attends_to_it",
        arguments={"layout": "padded", "pad_id": 7},
    ),
    Fault(
        probe="A2c",
        what="labels masked by the padding id",
        put_back=rows_masked_by_id,
        test=f"{PROBES}::test_a2c_a_model_trained_with_pad_as_eos_stops_after_its_answer",
    ),
    Fault(
        probe="A2d",
        what="EOS put behind a response that was cut",
        put_back=eos_after_truncation,
        test=f"{ENCODING}::test_a2d_a_truncated_response_has_no_eos",
    ),
    Fault(
        probe="A5a",
        what="the temperature is not mirrored",
        put_back=temperature_not_mirrored,
        test=f"{KERNEL}::test_a5a_temperature_reaches_the_logprob",
        arguments={"temperature": 0.6, "expected": -0.173008},
    ),
    Fault(
        probe="A5b",
        what="the temperature is not mirrored",
        put_back=temperature_not_mirrored,
        test=f"{STEP}::test_a5b_scores_are_at_the_sampling_temperature",
    ),
    Fault(
        probe="A5c",
        what="what top-p cut off is forgotten",
        put_back=truncation_not_mirrored,
        test="integration/test_engine_and_trainer.py::test_a5c_kept_mass_is_what_truncation_leaves",
        arguments={"truncation": "top_p"},
    ),
    Fault(
        probe="A5d",
        what="the kernel leaves a factor out of its gradient",
        put_back=kernel_ignores_temperature_in_its_gradient,
        test=f"{KERNEL}::test_chunks_equal_the_plain_path_in_value_and_gradient",
        arguments={"rows_per_chunk": 4, "temperature": 0.6, "scale": 1.0, "cap": None},
    ),
    Fault(
        probe="A7a",
        what="masked by multiplication",
        put_back=masked_by_multiplication,
        test=f"{FORMULAS}::test_a7a_everything_masked_is_exactly_zero_with_zero_gradients",
    ),
    Fault(
        probe="A7b",
        what="a masked row stays in the denominator",
        put_back=mean_of_microbatch_means,
        test=f"{FORMULAS}::test_e10_a_masked_row_leaves_both_sides",
        arguments={"reduction": "seq_mean_token_mean"},
    ),
    Fault(
        probe="A7c",
        what="gradients stay on their rank",
        put_back=gradients_stay_on_their_rank,
        test=f"{TWO_RANKS}::test_a7c_a_rank_with_everything_masked_changes_nothing",
        arguments={"name": "nll", "idle": 1},
        on_ranks=True,
    ),
    Fault(
        probe="A7d",
        what="masked by multiplication",
        put_back=masked_by_multiplication,
        test=f"{FORMULAS}::test_infinity_outside_the_mask_does_not_leak",
    ),
    Fault(
        probe="A8a",
        what="no clamp before exp",
        put_back=nothing_clamped_before_exp,
        test="unit/objectives/test_objectives_kl.py::"
        "test_a8a_overflow_gives_finite_value_and_gradient",
        arguments={"estimator": "k3", "dtype": torch.float32, "gap": 100.0},
    ),
    Fault(
        probe="A8b",
        what="no clamp before exp",
        put_back=nothing_clamped_before_exp,
        test=f"{FORMULAS}::test_a8b_huge_log_ratios_stay_finite",
        arguments={
            "difference": 100.0,
            "advantage": 1.0,
            "dtype": torch.float32,
            "surrogate": "ratio",
        },
    ),
    Fault(
        probe="A8c",
        what="a gradient of NaN is applied",
        put_back=non_finite_gradients_are_applied,
        test=f"{STEP}::test_a8c_a_non_finite_gradient_skips_the_step",
    ),
    Fault(
        probe="A12a",
        what="prompts drawn with replacement",
        put_back=drawn_with_replacement,
        test=f"{SAMPLER}::test_a12a_each_prompt_is_used_as_often_as_any_other",
    ),
    Fault(
        probe="A12a",
        what="rewards of different prompts in one group",
        put_back=rewards_of_different_prompts_mixed,
        test=f"{TWO_RANKS}::test_a12a_equal_rewards_within_groups_on_two_ranks",
        on_ranks=True,
    ),
    Fault(
        probe="A12b",
        what="rows of a group filtered one by one",
        put_back=rows_filtered_one_by_one,
        test="integration/test_probes_drawing.py::"
        "test_a12b_a_group_with_one_bad_sample_is_kept_whole",
        arguments={"prompts_per_step": 2},
    ),
    Fault(
        probe="A12c",
        what="the gold answer of another row",
        put_back=gold_of_the_row_before,
        test=f"{SAMPLER}::test_a12c_the_gold_stays_with_its_question",
    ),
    Fault(
        probe="A12d",
        what="sizes that do not divide are rounded",
        put_back=sizes_rounded_in_silence,
        test="unit/config/test_config_run.py::test_updates_are_whole_groups",
    ),
    Fault(
        probe="D12",
        what="the engine is never synced",
        put_back=engine_never_synced,
        test="unit/rollout/test_rollout_weights.py::"
        "test_D12_a_copy_is_stale_until_weights_are_loaded",
        arguments={"tied": True},
    ),
    Fault(
        probe="D12",
        what="the engine is never synced, and samples without a version",
        put_back=engine_never_synced_and_nobody_checks,
        test=f"{PROBES}::test_a9d_a13a_a14e_d12_a_sync_before_each_rollout_and_what_a_step_reports",
    ),
    Fault(
        probe="D12",
        what="stale samples are taken",
        put_back=nobody_checks_the_version,
        test="unit/rollout/test_rollout_collect.py::"
        "test_D12_stale_weights_raise_beyond_the_allowed_lag",
    ),
    Fault(
        probe="D14",
        what="the constant is the micro-batch's own token count",
        put_back=constant_is_the_own_token_count,
        test=f"{PROBES_OF_A_STEP}::"
        "test_d14_the_length_normalisations_differ_on_rows_of_two_and_six_tokens",
    ),
    # Last: it leaves the rank processes hung, and they have to be started again.
    Fault(
        probe="A7c",
        what="one collective for each metric that a rank happens to have",
        put_back=one_collective_for_each_name,
        test=f"{TWO_RANKS}::test_a7c_a_rank_with_everything_masked_changes_nothing",
        arguments={"name": "nll", "idle": 1},
        on_ranks=True,
    ),
)
