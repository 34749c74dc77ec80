"""Made-up steps are the run's own, of the size asked for; the search fails seldom."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tiny import tiny_model, tiny_tokenizer
from workings.config.dpo import DPOConfig
from workings.config.expert_iteration import ExpertIterationConfig
from workings.config.grpo import GRPOConfig
from workings.config.sft import SFTConfig
from workings.training import dpo, learn
from workings.training.profiling import made_up_steps as made_up
from workings.training.profiling.made_up_steps import Sizes, made_up_steps
from workings.training.profiling.peak import peak_since_reset, reset_peak
from workings.training.profiling.search import largest_that_passes

BASE = {"name": "r", "model": {"name_or_path": "tiny"}, "data": {"train": {"path": "p"}}}
RUNS = {
    "sft": SFTConfig.model_validate(BASE),
    "grpo": GRPOConfig.model_validate({**BASE, "num_generations": 4}),
    "grpo several updates and a reference": GRPOConfig.model_validate(
        {**BASE, "epochs_per_rollout": 2, "objective": {"beta": 0.1}}
    ),
    "luffy": GRPOConfig.model_validate({**BASE, "objective": {"preset": "luffy"}}),
    "remax": GRPOConfig.model_validate({**BASE, "objective": {"preset": "remax"}}),
    "gdpo": GRPOConfig.model_validate({**BASE, "objective": {"preset": "gdpo"}}),
    "dpo": DPOConfig.model_validate(BASE),
    "dpo live": DPOConfig.model_validate({**BASE, "reference": "live"}),
    "expert-iteration": ExpertIterationConfig.model_validate(BASE),
}


@pytest.mark.parametrize("name", RUNS)
def test_steps_are_made_of_microbatches_of_the_size_asked_for(name, monkeypatch):
    seen, steps = [], []
    inner = learn.policy_step

    def noted(model, optimizer, microbatches, loss, **settings):
        seen.append([(len(batch.keys), batch.input_ids.numel()) for batch in microbatches])
        return inner(model, optimizer, microbatches, loss, **settings)

    for module in (learn, dpo, made_up):
        monkeypatch.setattr(module, "policy_step", noted)
    model = tiny_model(tiny_tokenizer())
    before = [parameter.clone() for parameter in model.parameters()]
    sizes = Sizes(num_rows=4, length=40, num_steps=2, after_step=lambda: steps.append(1))
    made_up_steps(RUNS[name], model, sizes)
    assert len(steps) == 2
    for microbatches in seen:
        assert len(microbatches) >= 2
        assert all(rows == 4 for rows, _ in microbatches)
        # Rows that share a short prompt save little.
        assert all(0.6 * 160 <= tokens <= 160 for _, tokens in microbatches)
    moved = [not one.equal(p) for one, p in zip(before, model.parameters(), strict=True)]
    assert all(moved)


@given(st.integers(0, 200), st.integers(1, 150))
def test_the_search_finds_the_largest_with_few_failures(limit, most):
    tried = []

    def passes(size):
        tried.append(size)
        return size <= limit

    assert largest_that_passes(passes, most=most) == min(limit, most)
    assert len(tried) == len(set(tried))
    assert all(1 <= size <= most for size in tried)
    assert sum(size > limit for size in tried) <= 9


def test_the_search_refuses_nothing_to_try():
    with pytest.raises(ValueError, match="most=0"):
        largest_that_passes(lambda size: True, most=0)


def test_the_peak_of_a_process_begins_anew():
    device = torch.device("cpu")
    reset_peak(device)
    before = peak_since_reset(device)
    held = torch.ones(32 << 20)  # 128 MiB
    during = peak_since_reset(device)
    del held
    reset_peak(device)
    after = peak_since_reset(device)
    assert during - before > 120 * 2**20
    assert during - after > 100 * 2**20
