"""Is what the paged engine samples right? A real model, against transformers on the same device.

    python benchmarks/engine_correctness.py [--model smollm2] [--device cuda] [--prompts 200]
                                            [--tokens 256] [--record]

Greedy ids against transformers' `generate`; log-probabilities against full forward passes of the
same ids in float32; sampled frequencies against the exact distribution (chi-square); and the mean
importance ratio between engine and trainer. In float32 (TF32 off) the two must agree, in bfloat16
their distance is compared with the one between transformers' own bfloat16 and float32. Prompts are
the first questions of GSM8K's test set, read from `WORKINGS_DATA_DIR` or `../shared/data`. The
numbers go to OUT/engine_correctness.json, and with --record to benchmarks/results.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from grading_pairs import data_folder
from measured import Row, command_line, document, name_of, write
from pyarrow import parquet
from transformers import GenerationConfig

from workings.models.load import LoadedModel, load_model
from workings.objectives.logprobs import token_logprobs
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.paged.engine import PagedEngine
from workings.types import Sample

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "engine_correctness.json"
TIE = 1e-4
"""Two logits nearer than this may change places between two exact computations in float32."""
BATCH = 64
DRAWS = 50_000
LEAST_EXPECTED = 5.0
"""Draws that a bin of the chi-square test must expect; rarer tokens are put together."""
SETTINGS = {
    "temperature 1": SamplingParams(max_tokens=1),
    "temperature 0.7, top-k 50, top-p 0.9, min-p 0.02": SamplingParams(
        temperature=0.7, top_k=50, top_p=0.9, min_p=0.02, max_tokens=1
    ),
}


@dataclass(frozen=True, slots=True)
class Completion:
    """A prompt and what followed it."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]


def read_prompts(loaded: LoadedModel, count: int) -> list[tuple[int, ...]]:
    """The first questions as the chat template renders them."""
    questions = parquet.read_table(data_folder() / "gsm8k_test.parquet")["problem"].to_pylist()[
        :count
    ]
    prompts = []
    for question in questions:
        text = loaded.tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
        )
        prompts.append(tuple(loaded.tokenizer.encode(text, add_special_tokens=False)))
    return prompts


def in_bfloat16(model: Any) -> Any:
    """A copy as `from_pretrained(dtype=torch.bfloat16)` gives it: its buffers stay in float32."""
    coarse = copy.deepcopy(model).to(torch.bfloat16)
    buffers = dict(model.named_buffers())
    for name, buffer in coarse.named_buffers():
        buffer.data = buffers[name].clone()
    return coarse


def engine(loaded: LoadedModel, dtype: torch.dtype) -> PagedEngine:
    """The engine under test."""
    return PagedEngine(
        loaded.model, loaded.tokenizer, eos_token_ids=loaded.eos_token_ids, dtype=dtype
    )


def sampled(
    loaded: LoadedModel,
    dtype: torch.dtype,
    prompts: Sequence[tuple[int, ...]],
    sampling: SamplingParams,
    *,
    num_samples: int = 1,
) -> list[list[Sample]]:
    """Samples of every prompt from an engine that is closed afterwards."""
    sampler = engine(loaded, dtype)
    requests = [
        Request(prompt_ids=prompt, num_samples=num_samples, seed=seed)
        for seed, prompt in enumerate(prompts)
    ]
    samples = sampler.generate(requests, sampling)
    sampler.close()
    return samples


@torch.no_grad()
def generated(
    loaded: LoadedModel, model: Any, prompts: Sequence[tuple[int, ...]], num_tokens: int
) -> list[tuple[int, ...]]:
    """Greedy ids of transformers' `generate`, in batches padded on the left."""
    settings = GenerationConfig(
        do_sample=False,
        max_new_tokens=num_tokens,
        eos_token_id=list(loaded.eos_token_ids),
        pad_token_id=0,
    )
    outputs = []
    for start in range(0, len(prompts), BATCH):
        part = prompts[start : start + BATCH]
        width = max(map(len, part))
        rows = [[0] * (width - len(prompt)) + list(prompt) for prompt in part]
        seen = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in part]
        ids = torch.tensor(rows, device=loaded.device)
        mask = torch.tensor(seen, device=loaded.device)
        output = model.generate(ids, attention_mask=mask, generation_config=settings)
        for row in output[:, width:].tolist():
            ends = [place for place, token in enumerate(row) if token in loaded.eos_token_ids]
            outputs.append(tuple(row[: ends[0] + 1] if ends else row))
    return outputs


@torch.no_grad()
def logits_of(model: Any, completions: Sequence[Completion]) -> Iterator[torch.Tensor]:
    """Float32 [tokens, vocabulary] before each token of every completion, from forward passes."""
    for start in range(0, len(completions), BATCH // 4):
        part = completions[start : start + BATCH // 4]
        rows = [(*one.prompt, *one.ids) for one in part]
        width = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
        logits = model(input_ids=ids.to(model.device), use_cache=False).logits
        for one, line in zip(part, logits, strict=True):
            yield line[len(one.prompt) - 1 : len(one.prompt) + len(one.ids) - 1].float()


def logprobs_of(model: Any, completions: Sequence[Completion]) -> torch.Tensor:
    """Float64 log-probability of every token of all completions, one after the other."""
    parts = []
    for one, logits in zip(completions, logits_of(model, completions), strict=True):
        chosen = torch.tensor(one.ids, device=logits.device)[:, None]
        parts.append(logits.double().log_softmax(-1).gather(-1, chosen)[:, 0].cpu())
    return torch.cat(parts)


@torch.no_grad()
def trainer_logprobs(model: Any, completions: Sequence[Completion]) -> torch.Tensor:
    """The same as a training step computes it: float32 weights, arithmetic in bfloat16."""
    head = model.get_output_embeddings().weight
    parts = []
    for one in completions:
        ids = torch.tensor([[*one.prompt, *one.ids]], device=model.device)
        with torch.autocast(model.device.type, dtype=torch.bfloat16):
            hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[0]
        scored = hidden[len(one.prompt) - 1 : -1].to(torch.bfloat16)
        targets = ids[0, len(one.prompt) :]
        parts.append(token_logprobs(scored, targets, head_weight=head).logprobs.double().cpu())
    return torch.cat(parts)


def greedy_rows(
    loaded: LoadedModel,
    model: Any,
    prompts: Sequence[tuple[int, ...]],
    num_tokens: int,
    dtype: torch.dtype,
) -> Iterator[Row]:
    """Prompts whose greedy ids equal transformers', and the logit gap where they part."""
    sampling = SamplingParams(temperature=0, max_tokens=num_tokens)
    ours = [tuple(group[0].ids) for group in sampled(loaded, dtype, prompts, sampling)]
    theirs = generated(loaded, model, prompts, num_tokens)
    parted = [
        Completion(prompt, _up_to_first_difference(mine, other))
        for prompt, mine, other in zip(prompts, ours, theirs, strict=True)
        if mine != other
    ]
    others = {
        prompt: (mine, other) for prompt, mine, other in zip(prompts, ours, theirs, strict=True)
    }
    gaps = []
    for one, logits in zip(parted, logits_of(model, parted), strict=True):
        mine, other = others[one.prompt]
        place = len(one.ids) - 1
        pair = [sequence[place] for sequence in (mine, other) if place < len(sequence)]
        last = logits[place]
        gaps.append(float((last.max() - last[pair].min()).cpu()))
    num_same = len(prompts) - len(parted)
    name = "float32" if dtype == torch.float32 else "bfloat16"
    yield {
        "name": f"greedy ids equal to transformers', {name}",
        "value": 100 * num_same / len(prompts),
        "unit": "%",
        "n": len(prompts),
        "note": f"{num_same} of {len(prompts)} prompts, up to {num_tokens} tokens each",
    }
    if gaps:
        yield {
            "name": f"logit gap at the first difference, {name}",
            "value": max(gaps),
            "n": len(gaps),
            "note": f"the largest; mean {sum(gaps) / len(gaps):.2g}, "
            f"{sum(gap == 0 for gap in gaps)} exact ties",
        }


def _up_to_first_difference(mine: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    for place, (left, right) in enumerate(zip(mine, other, strict=False)):
        if left != right:
            return mine[: place + 1]
    return mine[: min(len(mine), len(other)) + 1]


def completions_of(
    prompts: Sequence[tuple[int, ...]], samples: Sequence[Sequence[Sample]]
) -> tuple[list[Completion], torch.Tensor]:
    """Every sample with its prompt, and all sampling log-probabilities one after the other."""
    completions, logprobs = [], []
    for prompt, group in zip(prompts, samples, strict=True):
        for sample in group:
            completions.append(Completion(prompt, tuple(sample.ids)))
            logprobs += list(sample.sampling_logprobs)
    return completions, torch.tensor(logprobs, dtype=torch.float64)


def logprob_rows(
    loaded: LoadedModel, prompts: Sequence[tuple[int, ...]], num_tokens: int
) -> Iterator[Row]:
    """Sampling log-probabilities against float32 forward passes over the same ids."""
    sampling = SamplingParams(max_tokens=num_tokens)
    exact = sampled(loaded, torch.float32, prompts, sampling)
    completions, ours = completions_of(prompts, exact)
    gaps = (ours - logprobs_of(loaded.model, completions)).abs()
    yield {
        "name": "largest gap of a log-probability to a float32 forward pass, float32",
        "value": float(gaps.max()),
        "n": len(gaps),
    }
    coarse = sampled(loaded, torch.bfloat16, prompts, sampling, num_samples=4)
    completions, ours = completions_of(prompts, coarse)
    wanted = logprobs_of(loaded.model, completions)
    trained = trainer_logprobs(loaded.model, completions)
    theirs = logprobs_of(in_bfloat16(loaded.model), completions)
    mine, other = (ours - wanted).abs(), (theirs - wanted).abs()
    for name, of in (
        ("mean", lambda gap: float(gap.mean())),
        ("99th percentile", lambda gap: float(gap.quantile(0.99))),
    ):
        yield {
            "name": f"{name} of the gap to a float32 forward pass, bfloat16",
            "value": of(mine),
            "n": len(mine),
            "peer": "transformers in bfloat16, the same ids",
            "peer_value": of(other),
            "ratio": of(mine) / of(other),
        }
    yield {
        **_mean_row("signed mean gap to a float32 forward pass, bfloat16", ours - wanted),
        "note": "over ids that the engine drew, where it is the KL divergence of the engine from "
        "the float32 model, which is above 0 for any two distributions that differ",
    }
    # With r = exp(float32 - engine), KL is the mean of r - 1 - log r (k3), the gap that of -log r.
    yield _mean_row("signed mean gap less the KL divergence, bfloat16", 1.0 - (wanted - ours).exp())
    yield _mean_row(
        "mean importance ratio, trainer over engine, both bfloat16", (trained - ours).exp()
    )


def _mean_row(name: str, values: torch.Tensor) -> Row:
    """A mean with its 95 % interval (normal; tokens taken as independent)."""
    half = 1.96 * float(values.std()) / len(values) ** 0.5
    mean = float(values.mean())
    return {"name": name, "value": mean, "low": mean - half, "high": mean + half, "n": len(values)}


def kept_probabilities(logits: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    """Float64 [vocabulary]: what may be drawn, renormalised; by sorting, straight from the terms.

    Top-k first, then top-p of what is left, then min-p.
    """
    probabilities = (logits.double() / sampling.temperature).softmax(-1)
    ordered, order = probabilities.sort(descending=True)
    if sampling.top_k > 0:
        ordered[sampling.top_k :] = 0.0
    if sampling.top_p < 1.0:
        before = ordered.cumsum(0) - ordered
        ordered[before >= sampling.top_p * ordered.sum()] = 0.0
    if sampling.min_p > 0.0:
        ordered[ordered < sampling.min_p * ordered[0]] = 0.0
    return torch.zeros_like(probabilities).scatter(0, order, ordered / ordered.sum())


def frequency_rows(loaded: LoadedModel, prompt: tuple[int, ...], number: int) -> Iterator[Row]:
    """Chi-square tests of the first token's frequencies against the exact distribution."""
    logits = next(logits_of(loaded.model, [Completion(prompt, (0,))]))[0].cpu()
    for name, sampling in SETTINGS.items():
        (group,) = sampled(loaded, torch.float32, [prompt], sampling, num_samples=DRAWS)
        counts = torch.bincount(
            torch.tensor([sample.ids[0] for sample in group]), minlength=len(logits)
        ).double()
        expected = kept_probabilities(logits, sampling) * DRAWS
        impossible = int(counts[expected == 0].sum())
        frequent = expected >= LEAST_EXPECTED
        bins = torch.cat([expected[frequent], expected[~frequent].sum()[None]])
        found = torch.cat([counts[frequent], counts[~frequent].sum()[None]])
        bins, found = bins[bins > 0], found[bins > 0]
        statistic = ((found - bins).square() / bins).sum()
        freedom = torch.tensor(len(bins) - 1, dtype=torch.float64)
        p_value = float(torch.special.gammaincc(freedom / 2, statistic / 2))
        yield {
            "name": f"p-value of the chi-square test, {name}, prompt {number}",
            "value": p_value,
            "n": DRAWS,
            "note": f"{len(bins)} bins; {impossible} draws of tokens that are cut off",
        }


def measure(loaded: LoadedModel, *, num_prompts: int, num_tokens: int) -> Iterator[Row]:
    """All rows, in order."""
    prompts = read_prompts(loaded, num_prompts)
    model = loaded.model.eval()
    yield from greedy_rows(loaded, model, prompts, num_tokens, torch.float32)
    yield from logprob_rows(loaded, prompts, num_tokens)
    for number, prompt in enumerate(prompts[:2], start=1):
        yield from frequency_rows(loaded, prompt, number)
    yield from greedy_rows(loaded, in_bfloat16(model), prompts, num_tokens, torch.bfloat16)


def main(arguments: Sequence[str]) -> int:
    """Measures and writes; 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--out", type=Path, default=Path("runs/engine_correctness"))
    parser.add_argument("--record", action="store_true", help="write to benchmarks/results too")
    parser.add_argument("--commit", help="to record where there is no repository")
    given = parser.parse_args(arguments)
    torch.backends.cuda.matmul.allow_tf32 = False
    loaded = load_model(given.model, dtype="float32", device=given.device)
    rows = []
    for row in measure(loaded, num_prompts=given.prompts, num_tokens=given.tokens):
        rows.append(row)
        print(json.dumps(row), flush=True)
    content = document(
        "engine_correctness",
        rows,
        command=command_line("benchmarks/engine_correctness.py", arguments),
        commit=given.commit,
        device={"device": name_of(loaded.device)},
    )
    write(given.out / "engine_correctness.json", content)
    if given.record:
        write(RECORD, content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
