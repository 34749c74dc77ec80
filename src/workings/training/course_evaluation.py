"""The course's evaluation during training: generate, score, aggregate, and write all of it.

The sampler is one of our engines, which take token ids, or a vLLM `LLM`, which takes texts; which
one it is follows from the sampling parameters (ours, or vLLM's own).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from workings.data.tokenizer import Tokenizer
from workings.errors import ConfigError
from workings.evaluation.reports import RESULTS_FILE, REWARD_NAMES, SUMMARY_FILE
from workings.rewards.four_classes import CATEGORIES, category_of
from workings.rollout.engine import Engine, Request, SamplingParams
from workings.seeds import derive_seed
from workings.training.course import RewardFunction, get_response_log_probs


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One scored response, with its ids (EOS included) and the rewards by name."""

    prompt: str
    ground_truth: Any
    response: str
    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    rewards: Mapping[str, float]

    @property
    def correct(self) -> bool:
        """True where the answer earned its reward."""
        return self.rewards["answer_reward"] > 0

    def as_row(self) -> dict[str, Any]:
        """The row of results.jsonl, as `workings eval` names its fields."""
        return {
            "prompt": self.prompt,
            "ground_truth": self.ground_truth,
            "response": self.response,
            "metrics": dict(self.rewards),
            "correct": self.correct,
            "response_tokens": len(self.ids),
        }


def generate_and_score(
    model: Any,
    reward_fn: RewardFunction,
    prompts: Sequence[str],
    sampling_params: Any,
    ground_truths: Sequence[Any],
    *,
    tokenizer: Tokenizer | None = None,
    seed: int = 0,
) -> list[Generation]:
    """One response to each prompt with its rewards, in the order of the prompts.

    Args:
        model: an engine, with `tokenizer` and our `SamplingParams`; or a vLLM `LLM` with vLLM's.
        reward_fn: (response, ground truth) -> format_reward, answer_reward and reward.
        seed: of an engine's draws; vLLM's stands in its own parameters.
    """
    if len(prompts) != len(ground_truths) or not prompts:
        raise ValueError(
            f"{len(prompts)} prompts and {len(ground_truths)} ground truths; expected the same "
            "number, at least 1"
        )
    if isinstance(sampling_params, SamplingParams):
        if tokenizer is None:
            raise ConfigError(
                "an engine samples from token ids, so evaluating it needs tokenizer=",
                hint="pass the tokenizer that the engine was made with",
            )
        answers = _from_engine(model, tokenizer, prompts, sampling_params, seed)
    else:
        answers = [
            (tuple(output.prompt_token_ids), tuple(output.outputs[0].token_ids), _text(output))
            for output in model.generate(list(prompts), sampling_params)
        ]
    return [
        Generation(
            prompt=prompt,
            ground_truth=gold,
            response=text,
            prompt_ids=prompt_ids,
            ids=ids,
            rewards=_rewards(reward_fn, text, gold),
        )
        for prompt, gold, (prompt_ids, ids, text) in zip(
            prompts, ground_truths, answers, strict=True
        )
    ]


def evaluate_vllm(
    model: Any,
    reward_fn: RewardFunction,
    prompts: Sequence[str],
    sampling_params: Any,
    ground_truths: Sequence[Any],
    *,
    output_dir: str | Path,
    tokenizer: Tokenizer | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Means of the rewards, the mean length and the counts of the four classes (1.8).

    `output_dir` holds results.jsonl (prompt, ground truth, response, rewards of each example) and
    summary.json afterwards. Arguments as in `generate_and_score`.
    """
    generations = generate_and_score(
        model, reward_fn, prompts, sampling_params, ground_truths, tokenizer=tokenizer, seed=seed
    )
    count = len(generations)
    means = {name: sum(g.rewards[name] for g in generations) / count for name in REWARD_NAMES}
    classes = Counter(
        category_of(g.rewards["format_reward"], g.rewards["answer_reward"]) for g in generations
    )
    folder = Path(output_dir).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    # A lone surrogate (half an emoji cut by a tokenizer) cannot be written as UTF-8.
    with (folder / RESULTS_FILE).open("w", encoding="utf-8", errors="replace") as file:
        for generation in generations:
            file.write(json.dumps(generation.as_row(), ensure_ascii=False) + "\n")
    summary = {
        "total_examples": count,
        "aggregate_metrics": means,
        "category_breakdown": {
            name: {"count": classes[name], "percentage": 100 * classes[name] / count}
            for name in CATEGORIES
        },
    }
    text = json.dumps(summary, indent=2) + "\n"
    (folder / SUMMARY_FILE).write_text(text, encoding="utf-8")
    return {
        **means,
        "num_examples": float(count),
        "avg_response_length": sum(len(g.ids) for g in generations) / count,
        **{name: float(classes[name]) for name in CATEGORIES},
    }


@torch.no_grad()
def log_generations(
    policy: nn.Module,
    engine: Engine,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    ground_truths: Sequence[Any],
    reward_fn: RewardFunction,
    sampling_params: SamplingParams,
    *,
    seed: int = 0,
) -> dict[str, Any]:
    """{"generations": rows, "metrics": means} of a few responses of the policy (1.7).

    A row has prompt, ground truth, response, rewards, length and the mean entropy of the policy
    over the response's tokens. Metrics: means of the rewards, of the entropy, and of the length
    overall, of right and of wrong responses, None for a class without one.
    """
    generations = generate_and_score(
        engine, reward_fn, prompts, sampling_params, ground_truths, tokenizer=tokenizer, seed=seed
    )
    entropies = [_mean_entropy(policy, generation) for generation in generations]
    lengths = [len(generation.ids) for generation in generations]
    right = [n for n, g in zip(lengths, generations, strict=True) if g.correct]
    wrong = [n for n, g in zip(lengths, generations, strict=True) if not g.correct]
    means = {
        name: sum(g.rewards[name] for g in generations) / len(generations) for name in REWARD_NAMES
    }
    return {
        "generations": [
            {**generation.as_row(), "token_entropy": entropy}
            for generation, entropy in zip(generations, entropies, strict=True)
        ],
        "metrics": {
            **means,
            "avg_token_entropy": _mean(entropies),
            "avg_response_length": _mean(lengths),
            "avg_response_length/correct": _mean(right),
            "avg_response_length/incorrect": _mean(wrong),
        },
    }


def _from_engine(
    engine: Engine,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    sampling: SamplingParams,
    seed: int,
) -> list[tuple[tuple[int, ...], tuple[int, ...], str]]:
    requests = [
        Request(prompt_ids=tuple(tokenizer.encode(prompt)), seed=derive_seed(seed, "course", index))
        for index, prompt in enumerate(prompts)
    ]
    samples = engine.generate(requests, sampling)
    return [
        (request.prompt_ids, tuple(sample.ids), sample.text)
        for request, (sample,) in zip(requests, samples, strict=True)
    ]


def _text(output: Any) -> str:
    text: str = output.outputs[0].text
    return text


def _rewards(reward_fn: RewardFunction, response: str, gold: Any) -> dict[str, float]:
    scores = {name: float(value) for name, value in reward_fn(response, gold).items()}
    missing = [name for name in REWARD_NAMES if name not in scores]
    if missing:
        raise ValueError(
            f"the reward function gave {', '.join(scores) or 'nothing'}; "
            f"{', '.join(missing)} missing"
        )
    return scores


def _mean_entropy(policy: nn.Module, generation: Generation) -> float:
    device = next(policy.parameters()).device
    row = torch.tensor([[*generation.prompt_ids, *generation.ids]], device=device)
    scores = get_response_log_probs(policy, row[:, :-1], row[:, 1:], return_token_entropy=True)
    return float(scores["token_entropy"][0, len(generation.prompt_ids) - 1 :].mean())


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
