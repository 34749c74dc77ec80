"""The engine's log-probabilities are the trainer's, at every temperature and truncation."""

from __future__ import annotations

import pytest
import torch

from tiny import tiny_model, tiny_tokenizer
from workings.data.encoding import encode_prompt
from workings.data.templates import load_template
from workings.models.lora import add_lora
from workings.models.weights import named_full_weights
from workings.rollout.collect import collect_groups
from workings.rollout.engine import SamplingParams
from workings.rollout.transformers_engine import TransformersEngine
from workings.training.forward import response_scores
from workings.training.packing import TrainRow, pack
from workings.types import Problem

TOKENIZER = tiny_tokenizer()
TRUNCATIONS = {
    "none": {},
    "top_k": {"top_k": 7},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.2},
    "all three": {"top_k": 20, "top_p": 0.9, "min_p": 0.05},
}


def policy(lora):
    model = tiny_model(TOKENIZER)
    if lora:
        model = add_lora(model, rank=4, alpha=8, dropout=0.0, targets=["q_proj", "up_proj"], seed=0)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(std=0.2, generator=torch.Generator().manual_seed(1))
    return model


def sampled_rows(model, sampling):
    template = load_template("think")
    prompts = [
        encode_prompt(Problem(id=str(i), question=question, answer="1"), template, TOKENIZER)
        for i, question in enumerate(["1+2", "hello. memory, 31+4", "9"])
    ]
    engine = TransformersEngine(model, TOKENIZER, eos_token_ids=[TOKENIZER.eos_token_id])
    engine.load_weights(1, named_full_weights(model))
    groups = collect_groups(engine, prompts, sampling, num_samples=4, seed=3, expected_version=1)
    rollouts = [(number, g, r) for number, g in enumerate(groups) for r in g.rollouts]
    return [
        TrainRow(
            key=key,
            group=number,
            prompt_ids=group.prompt.ids,
            response_ids=rollout.ids,
            mask=rollout.mask,
            sampling_logprobs=rollout.sampling_logprobs,
            kept_mass=rollout.kept_mass,
        )
        for key, (number, group, rollout) in enumerate(rollouts)
    ]


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
@pytest.mark.parametrize("truncation", TRUNCATIONS)
@pytest.mark.parametrize("lora", [False, True])
def test_a5b_engine_and_trainer_agree(temperature, truncation, lora):
    model = policy(lora)
    sampling = SamplingParams(
        temperature=temperature, max_tokens=20, stop=("+",), **TRUNCATIONS[truncation]
    )
    rows = sampled_rows(model, sampling)
    cut = []
    for layout in ("padded", "packed", "shared_prompt", "documents", "shared_documents"):
        for batch in pack(rows, layout=layout, max_tokens=200):
            with torch.no_grad():
                scores = response_scores(model, batch, temperature=temperature)
            gap = (scores.logprobs - batch.sampling_logprobs)[batch.mask].abs()
            assert gap.max() < 1e-4
            cut.append(batch.kept_mass[batch.mask])
    kept = torch.cat(cut)
    assert (kept <= 1.0 + 1e-6).all()
    assert ((kept < 1.0 - 1e-6).any()) == (truncation != "none")


@pytest.mark.parametrize("truncation", ["top_k", "top_p", "min_p", "all three"])
def test_a5c_kept_mass_is_what_truncation_leaves(truncation):
    """Against the definition on the model's own logits: top-k, then top-p, then min-p."""
    model = policy(False)
    settings = TRUNCATIONS[truncation]
    rows = sampled_rows(model, SamplingParams(temperature=1.3, max_tokens=6, **settings))
    for row in rows:
        ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
        with torch.no_grad():
            logits = model(ids).logits[0, len(row.prompt_ids) - 1 : -1].double() / 1.3
        for step, p in enumerate(torch.softmax(logits, -1)):
            order = p.argsort(descending=True)
            kept = torch.ones_like(p, dtype=torch.bool)
            if "top_k" in settings:
                kept &= p >= p[order[settings["top_k"] - 1]]
            if "top_p" in settings:
                inside = torch.where(kept, p, 0.0) / p[kept].sum()
                ahead = inside[order].cumsum(0) - inside[order]
                kept[order[ahead >= settings["top_p"]]] = False
            if "min_p" in settings:
                kept &= p >= settings["min_p"] * p.max()
            assert kept[row.response_ids[step]]
            assert row.kept_mass[step] == pytest.approx(p[kept].sum().item(), abs=1e-5)
