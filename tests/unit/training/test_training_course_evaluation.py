from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from tiny import tiny_model, tiny_tokenizer
from workings.errors import ConfigError
from workings.evaluation.reports import read_results, read_summary
from workings.rewards.r1_zero import r1_zero_reward_fn
from workings.rollout.engine import SamplingParams
from workings.rollout.scripted import ScriptedEngine
from workings.rollout.transformers_engine import TransformersEngine
from workings.training.course_evaluation import evaluate_vllm, log_generations
from workings.training.course_vllm import init_vllm, load_policy_into_vllm_instance

PROMPTS = ["1+1? <think>", "2+2? <think>", "3+3? <think>"]
GOLDS = ["2", "4", "6"]
TEXTS = ["two </think> <answer>2</answer>", "odd </think> <answer>5</answer>", "none"]
SAMPLING = SamplingParams(max_tokens=64)


def test_evaluation_aggregates_and_writes(tmp_path):
    tokenizer = tiny_tokenizer()
    metrics = evaluate_vllm(
        ScriptedEngine(tokenizer, TEXTS),
        r1_zero_reward_fn,
        PROMPTS,
        SAMPLING,
        GOLDS,
        output_dir=tmp_path / "eval",
        tokenizer=tokenizer,
    )
    assert metrics["reward"] == metrics["answer_reward"] == pytest.approx(1 / 3)
    assert metrics["format_reward"] == pytest.approx(2 / 3)
    counts = {name[:10]: n for name, n in metrics.items() if name.startswith("category")}
    assert counts == {"category_1": 1, "category_2": 1, "category_3": 1, "category_4": 0}
    rows = read_results(tmp_path / "eval")
    assert [row["response"] for row in rows] == TEXTS
    assert [row["ground_truth"] for row in rows] == GOLDS
    assert [row["metrics"]["reward"] for row in rows] == [1.0, 0.0, 0.0]
    summary = read_summary(tmp_path / "eval")
    assert summary["total_examples"] == 3
    assert summary["category_breakdown"]["category_1_format1_answer1"]["count"] == 1


def test_evaluation_by_vllms_own_interface(tmp_path):
    class LLM:
        def generate(self, prompts, sampling_params):
            assert sampling_params.max_tokens == 7
            answers = zip(prompts, TEXTS, strict=True)
            return [
                SimpleNamespace(
                    prompt_token_ids=[1, 2],
                    outputs=[SimpleNamespace(token_ids=[3] * len(text), text=text)],
                )
                for _, text in answers
            ]

    theirs = SimpleNamespace(max_tokens=7)
    metrics = evaluate_vllm(LLM(), r1_zero_reward_fn, PROMPTS, theirs, GOLDS, output_dir=tmp_path)
    assert metrics["answer_reward"] == pytest.approx(1 / 3)
    assert metrics["avg_response_length"] == pytest.approx(sum(map(len, TEXTS)) / 3)


def test_evaluation_says_what_is_missing(tmp_path):
    engine = ScriptedEngine(tiny_tokenizer(), TEXTS)
    with pytest.raises(ConfigError, match="needs tokenizer="):
        evaluate_vllm(engine, r1_zero_reward_fn, PROMPTS, SAMPLING, GOLDS, output_dir=tmp_path)
    with pytest.raises(ValueError, match="3 prompts and 2 ground truths"):
        evaluate_vllm(engine, r1_zero_reward_fn, PROMPTS, SAMPLING, GOLDS[:2], output_dir=tmp_path)
    with pytest.raises(ValueError, match="gave reward; format_reward, answer_reward missing"):
        evaluate_vllm(
            engine,
            lambda response, gold: {"reward": 1.0},
            PROMPTS,
            SAMPLING,
            GOLDS,
            output_dir=tmp_path,
            tokenizer=tiny_tokenizer(),
        )


def test_generations_are_logged_with_entropies_and_lengths_by_class():
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer)
    logged = log_generations(
        model,
        ScriptedEngine(tokenizer, TEXTS),
        tokenizer,
        PROMPTS,
        GOLDS,
        r1_zero_reward_fn,
        SAMPLING,
    )
    rows, metrics = logged["generations"], logged["metrics"]
    lengths = [len(tokenizer.encode(text)) + 1 for text in TEXTS]
    assert [row["response_tokens"] for row in rows] == lengths
    assert metrics["avg_response_length"] == pytest.approx(sum(lengths) / 3)
    assert metrics["avg_response_length/correct"] == lengths[0]
    assert metrics["avg_response_length/incorrect"] == pytest.approx(sum(lengths[1:]) / 2)
    prompt, answer = tokenizer.encode(PROMPTS[1]), tokenizer.encode(TEXTS[1])
    ids = torch.tensor([[*prompt, *answer, tokenizer.eos_token_id]])
    p = torch.softmax(model(ids[:, :-1]).logits[0, len(prompt) - 1 :], -1)
    entropy = -(p * p.log()).sum(-1).mean().item()
    assert rows[1]["token_entropy"] == pytest.approx(entropy, abs=1e-5)
    assert json.dumps(logged)


def test_a_class_without_a_response_has_no_mean_length():
    tokenizer = tiny_tokenizer()
    logged = log_generations(
        tiny_model(tokenizer),
        ScriptedEngine(tokenizer, ["none"]),
        tokenizer,
        PROMPTS,
        GOLDS,
        r1_zero_reward_fn,
        SAMPLING,
    )
    assert logged["metrics"]["avg_response_length/correct"] is None


def test_vllm_that_is_not_installed_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ConfigError, match="pip install 'workings\\[vllm\\]'"):
        init_vllm("model", "cuda:0", 0)
    with pytest.raises(ConfigError, match="first visible card"):
        init_vllm("model", "cuda:1", 0)


def test_vllm_is_made_as_the_handout_says(monkeypatch):
    made = {}

    class LLM:
        def __init__(self, **settings):
            made.update(settings)

    fake = ModuleType("vllm")
    fake.LLM = LLM
    monkeypatch.setitem(sys.modules, "vllm", fake)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    init_vllm("model", "cuda", 3)
    assert made == {
        "model": "model",
        "seed": 3,
        "dtype": "bfloat16",
        "enable_prefix_caching": True,
        "gpu_memory_utilization": 0.85,
    }


def test_the_policy_goes_into_an_engine_and_into_vllm():
    tokenizer = tiny_tokenizer()
    policy, other = tiny_model(tokenizer, seed=1), tiny_model(tokenizer, seed=2)
    engine = TransformersEngine(
        other, tokenizer, eos_token_ids=[tokenizer.eos_token_id], share_weights=False
    )
    load_policy_into_vllm_instance(policy, engine)
    assert engine.weight_version == 1

    class Inner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.loaded = {}

        def load_weights(self, weights):
            self.loaded = dict(weights)

    class LLM:
        def __init__(self):
            self.model, self.calls = Inner(), []

        def apply_model(self, function):
            self.calls.append("load")
            return [function(self.model)]

        def reset_prefix_cache(self):
            self.calls.append("reset")

    LLM.__module__ = "vllm.entrypoints.llm"
    llm = LLM()
    load_policy_into_vllm_instance(policy, llm)
    assert llm.calls == ["load", "reset"]
    for name, parameter in policy.named_parameters():
        assert llm.model.loaded[name].equal(parameter)
