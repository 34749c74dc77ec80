"""Probes of known faults that only whole parts together can show, on the tiny model."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tiny import tiny_model, tiny_tokenizer
from workings import (
    BatchSampler,
    Checkpointer,
    Demonstration,
    Grader,
    PromptSampler,
    Recorder,
    Request,
    RunPaths,
    SamplingParams,
    ScriptedEngine,
    StopRequest,
    TransformersEngine,
    build_adamw,
    build_reward,
    compose,
    encode_demonstrations,
    encode_prompts,
    evaluate,
    load_problems,
    load_template,
    pack,
    policy_gradient_loss,
    policy_step,
    read_metrics,
    step_totals,
    supervised_loss,
    train_grpo,
)
from workings.config.objective_settings import ObjectiveConfig
from workings.training.distributed import Ranks
from workings.training.forward import ResponseScores
from workings.training.packing import TrainRow
from workings.training.sft import demonstration_row

TASK = {"num_problems": 12, "terms": 2, "operands": [1, 9]}
THINK = load_template("think")


def rows_for(tokenizer: Any, pairs: Iterable[tuple[str, str]]) -> list[TrainRow]:
    demonstrations = [
        Demonstration(id=f"d/{n}", question=question, response=response)
        for n, (question, response) in enumerate(pairs)
    ]
    encoded = encode_demonstrations(demonstrations, THINK, tokenizer).items
    return [demonstration_row(example, key) for key, example in enumerate(encoded)]


def supervised_step(model: Any, rows: Sequence[TrainRow], optimizer: Any) -> float:
    totals = step_totals(rows, Ranks())
    batches = pack(rows, layout="padded", max_tokens=64, max_rows=1)
    return policy_step(model, optimizer, batches, supervised_loss(totals)).loss


def test_a1d_a1e_a_short_last_batch_has_its_own_count_in_the_logged_loss() -> None:
    """Three rows in batches of two: the loss of the second batch is that of its one row."""
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer)
    rows = rows_for(tokenizer, [("1+1", "2"), ("2+2", "it is 4"), ("3+3", "six")])
    sampler = BatchSampler(rows, batch_size=2, seed=0)
    first, cursor = sampler.next_batch(0)
    last, _ = sampler.next_batch(cursor)
    assert (len(first), len(last)) == (2, 1)
    (row,) = last
    ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
    labels = ids.clone()
    labels[0, : len(row.prompt_ids)] = -100
    with torch.no_grad():
        expected = model(input_ids=ids, labels=labels).loss.item()
    logged = supervised_step(model, last, build_adamw(model))
    assert logged == pytest.approx(expected, rel=1e-5)


def test_a2c_a_model_trained_with_pad_as_eos_stops_after_its_answer() -> None:
    tokenizer = tiny_tokenizer(pad_is_eos=True)
    model = tiny_model(tokenizer)
    rows = rows_for(tokenizer, [("2+2", "4"), ("3+3", "six")])
    optimizer = build_adamw(model)
    for group in optimizer.param_groups:
        group["lr"] = 1e-2
    for _ in range(60):
        supervised_step(model, rows, optimizer)
    engine = TransformersEngine(model, tokenizer, eos_token_ids=[tokenizer.eos_token_id])
    requests = [Request(prompt_ids=tuple(row.prompt_ids)) for row in rows]
    greedy = SamplingParams(temperature=0.0, max_tokens=20)
    samples = [sample for (sample,) in engine.generate(requests, greedy)]
    assert [(s.text, s.finish_reason) for s in samples] == [("4", "eos"), ("six", "eos")]


def test_a6d_ratios_in_the_metrics_are_not_clipped() -> None:
    row = TrainRow(
        key=0,
        group=0,
        prompt_ids=(1,),
        response_ids=(2, 3),
        mask=(True, True),
        advantage=1.0,
        sampling_logprobs=(-2.0, -2.0),
        kept_mass=(1.0, 1.0),
    )
    (batch,) = pack([row], layout="padded", max_tokens=8)
    logprobs = torch.tensor([[-2.0, -0.5]], requires_grad=True)
    loss = policy_gradient_loss(
        step_totals([row], Ranks()),
        ObjectiveConfig(reduction="token_mean").resolve(),
        max_length=8,
    )
    scores = ResponseScores(
        logprobs=logprobs,
        entropies=torch.zeros(1, 2),
        is_top=torch.zeros(1, 2, dtype=torch.bool),
    )
    output = loss(scores, replace(batch, old_logprobs=torch.full((1, 2), -2.0)))
    assert output.maxima["ratio"].item() == pytest.approx(math.exp(1.5), rel=1e-6)
    assert output.sums["clip_high"].item() == 1


class NotedEngine(TransformersEngine):
    """Notes every sync and every rollout, with the version of the weights at that moment."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.notes: list[tuple[str, int]] = []

    def generate(self, requests: Any, sampling: Any) -> Any:
        self.notes.append(("rollout", self.weight_version))
        return super().generate(requests, sampling)

    def load_weights(self, version: int, tensors: Any) -> None:
        super().load_weights(version, tensors)
        self.notes.append(("sync", version))


def test_a9d_a13a_a14e_d12_a_sync_before_each_rollout_and_what_a_step_reports(
    tmp_path: Path,
) -> None:
    config = compose(
        ["quickstart"],
        ["model.name_or_path=tiny", "max_steps=3", "prompts_per_step=2", "num_generations=3"],
        kind="grpo",
    )
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer)
    engine = NotedEngine(model, tokenizer, eos_token_ids=[tokenizer.eos_token_id])
    prompts = encode_prompts(load_problems("arithmetic", options=TASK).items, THINK, tokenizer)
    recorder = Recorder(tmp_path)
    with recorder, Grader() as grader:
        train_grpo(
            config,  # type: ignore[arg-type]
            model=model,
            engine=engine,
            sampler=PromptSampler(prompts.items, prompts_per_step=2, seed=0),
            sampling=SamplingParams(max_tokens=6, stop=("a", "e", "7")),
            reward=build_reward("r1_zero", grader=grader, max_tokens=6, overlong_buffer=5),
            recorder=recorder,
            checkpointer=Checkpointer(
                RunPaths(folder=tmp_path), tokenizer, recorder, kind="grpo", config_text=""
            ),
            stop=StopRequest(),
        )
    assert engine.notes == [
        *(("sync", 0), ("rollout", 0), ("sync", 1), ("rollout", 1)),
        *(("sync", 2), ("rollout", 2), ("sync", 3)),
    ]
    for row in read_metrics(tmp_path / "metrics.jsonl"):
        assert abs(row["train/policy_loss"]) < 0.5
        assert row["train/grad_norm"] > 0
        assert 0 <= row["train/frac_reward_zero_std"] < 1
        assert row["train/ratio/max"] == pytest.approx(1.0, abs=1e-4)
        assert row["train/logprob_difference/max"] < 1e-4
        assert row["train/weight_version_lag"] == 0
        for name in ("format", "answer", "overlong"):
            assert f"train/rewards/{name}/mean" in row


def test_a19b_memory_does_not_grow_from_evaluation_to_evaluation(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    engine = ScriptedEngine(tokenizer, ["it is 7 </think> <answer>7</answer>", "7" * 200])
    prompts = encode_prompts(load_problems("arithmetic", options=TASK).items, THINK, tokenizer)
    process = psutil.Process(os.getpid())
    used = []
    with Grader() as grader:
        reward = build_reward("r1_zero", grader=grader)
        for _ in range(50):
            evaluate(
                engine,
                prompts.items,
                reward,
                SamplingParams(max_tokens=256),
                num_samples=4,
                seed=0,
                dataset="sums",
                folder=tmp_path,
            )
            used.append(process.memory_info().rss)
    assert used[-1] < 1.05 * used[9]
