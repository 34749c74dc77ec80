"""The two sides of benchmarks/rollout.py: an engine of this package, and vLLM. Workers both."""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rollout_cases import Case
from shapes import load_tokenizer

RESERVE_SECONDS = 3.0
"""Of a call that makes an engine take the largest cache it will need, and is then aborted."""
STAIRS = 40
"""Sizes of batch that a warm-up goes through."""
STEPS_OF_A_STAIR = 8
CAPTURED = (
    *(1, 2, 4),
    *range(8, 65, 8),
    *range(80, 257, 16),
    *range(288, 513, 32),
    *range(576, 1025, 64),
)
"""Batch sizes for which vLLM captures a CUDA graph when it is tuned; by default up to 512."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One repeat: what came out, and the seconds between the call and the samples."""

    tokens: int
    seconds: float


def check(case: Case, counts: Sequence[int], logprobs_kept: bool) -> int:
    """Tokens in all; ValueError where a completion is not as long as asked, or has no logprobs."""
    wanted = [length for length in case.lengths() for _ in range(case.samples)]
    wrong = [(found, asked) for found, asked in zip(counts, wanted, strict=True) if found != asked]
    if wrong:
        raise ValueError(f"{case.name}: {len(wrong)} completions have other lengths: {wrong[:3]}")
    if not logprobs_kept:
        raise ValueError(f"{case.name}: log-probabilities are missing or not finite")
    return sum(counts)


def stairs(num_sequences: int) -> list[int]:
    """Lengths with which a batch of so many sequences shrinks to nothing, size by size.

    >>> stairs(4)
    [8, 16, 24, 32]
    """
    steps = min(STAIRS, num_sequences)
    return [
        STEPS_OF_A_STAIR * (1 + number * steps // num_sequences) for number in range(num_sequences)
    ]


# --------------------------------------------------------------------------------------------- ours


class Ours:
    """An engine of this package."""

    engine: Any = None

    def open(self, cases: Sequence[Case], settings: Mapping[str, Any]) -> dict[str, Any]:
        """Builds the engine and warms it up for the cases."""
        from workings.rollout.engine import Request, SamplingParams

        self.engine, self.torch = build_engine(**settings)
        if hasattr(self.engine, "abort"):
            self._reserve(max(cases, key=lambda case: case.longest * case.sequences))
        largest = max(cases, key=lambda case: case.sequences)
        lengths = stairs(largest.sequences)
        prompts = largest.prompt_ids(-1)
        requests = [
            Request(prompt_ids=prompts[number % len(prompts)], seed=number, max_tokens=length)
            for number, length in enumerate(lengths)
        ]
        sampling = SamplingParams(max_tokens=max(lengths))
        for _ in range(2):
            self.engine.generate(requests, sampling)
        return {}

    def _reserve(self, largest: Case) -> None:
        """Makes the engine take all the memory that it will need, so that no run takes it later."""
        from workings.errors import EngineError

        timer = threading.Timer(RESERVE_SECONDS, self.engine.abort)
        timer.start()
        with suppress(EngineError):
            self.run(largest, -1)
        timer.cancel()
        timer.join()

    def run(self, case: Case, repeat: int) -> Run:
        """One repeat."""
        from workings.rollout.engine import Request, SamplingParams

        requests = [
            Request(prompt_ids=prompt, num_samples=case.samples, seed=seed, max_tokens=length)
            for seed, (prompt, length) in enumerate(
                zip(case.prompt_ids(repeat), case.lengths(), strict=True)
            )
        ]
        sampling = SamplingParams(temperature=1.0, max_tokens=case.output_tokens, logprobs=True)
        started = time.perf_counter()
        groups = self.engine.generate(requests, sampling)
        seconds = time.perf_counter() - started
        samples = [sample for group in groups for sample in group]
        finite = all(math.isfinite(sum(sample.sampling_logprobs)) for sample in samples)
        tokens = check(case, [len(sample.ids) for sample in samples], finite)
        return Run(tokens=tokens, seconds=seconds)

    def sleep(self) -> None:
        """Gives back what it can."""
        self.engine.sleep()
        gc.collect()
        if self.torch.cuda.is_available():
            self.torch.cuda.empty_cache()

    def wake(self) -> None:
        """Is ready again."""
        self.engine.wake()

    def close(self) -> None:
        """Gives everything back."""
        if self.engine is not None:
            self.engine.close()


def build_engine(*, folder: str, name: str, device: str, share: float) -> tuple[Any, Any]:
    """The engine that is measured, without a token that ends a completion; and torch.

    The policy itself goes once the engine has its weights: here nothing is trained.
    """
    import torch
    from transformers import AutoModelForCausalLM

    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
    tokenizer = load_tokenizer(Path(folder))
    if name == "paged":
        from workings.rollout.paged.engine import PagedEngine

        engine: Any = PagedEngine(
            model, tokenizer, eos_token_ids=(), dtype=dtype, memory_utilization=share
        )
        del model
        gc.collect()
    else:
        from workings.rollout.transformers_engine import TransformersEngine

        engine = TransformersEngine(model, tokenizer, eos_token_ids=())
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    return engine, torch


# --------------------------------------------------------------------------------------------- vLLM


def vllm_settings(peer: str, *, share: float, longest: int, sleeps: bool) -> dict[str, Any]:
    """Arguments of `vllm.LLM` besides the model: tuned for these cases, or its own defaults."""
    settings: dict[str, Any] = {"gpu_memory_utilization": share}
    if sleeps:
        settings["enable_sleep_mode"] = True
    if peer == "defaults":
        return settings
    return settings | {
        "dtype": "bfloat16",
        "max_model_len": longest + 16,
        "max_num_seqs": 1024,
        "max_num_batched_tokens": 16384,
        "async_scheduling": True,
        "enable_prefix_caching": True,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "compilation_config": {"cudagraph_capture_sizes": list(CAPTURED)},
    }


def vllm_sampling(peer: str) -> dict[str, Any]:
    """Arguments of `vllm.SamplingParams`; with logprobs=0 the sampled token has its logprob."""
    common = {"temperature": 1.0, "ignore_eos": True, "logprobs": 0}
    return common if peer == "defaults" else common | {"detokenize": False, "flat_logprobs": True}


class VLLM:
    """vLLM's offline engine, its core in a process of its own, as it comes."""

    llm: Any = None

    def open(self, cases: Sequence[Case], settings: Mapping[str, Any]) -> dict[str, Any]:
        """Builds the engine and warms it up for the cases; says which vLLM it is."""
        from vllm import LLM

        asked_for = dict(settings)
        folder, self.peer = asked_for.pop("folder"), asked_for.pop("peer")
        self.llm = LLM(folder, **vllm_settings(self.peer, **asked_for))
        largest = max(cases, key=lambda case: case.sequences)
        lengths = stairs(largest.sequences)
        prompts = largest.prompt_ids(-1)
        asked = [(prompts[number % len(prompts)], 1, n) for number, n in enumerate(lengths)]
        self._generate(asked)
        return {"vllm": version("vllm")}

    def run(self, case: Case, repeat: int) -> Run:
        """One repeat."""
        asked = [
            (prompt, case.samples, length)
            for prompt, length in zip(case.prompt_ids(repeat), case.lengths(), strict=True)
        ]
        started = time.perf_counter()
        outputs = self._generate(asked)
        seconds = time.perf_counter() - started
        samples = [sample for output in outputs for sample in output.outputs]
        kept = all(
            sample.logprobs is not None and len(sample.logprobs) == len(sample.token_ids)
            for sample in samples
        )
        tokens = check(case, [len(sample.token_ids) for sample in samples], kept)
        self.llm.reset_prefix_cache()
        return Run(tokens=tokens, seconds=seconds)

    def _generate(self, asked: Sequence[tuple[tuple[int, ...], int, int]]) -> list[Any]:
        """vLLM's outputs for (prompt ids, samples, tokens)."""
        from vllm import SamplingParams

        sampling = vllm_sampling(self.peer)
        return self.llm.generate(
            [{"prompt_token_ids": list(prompt)} for prompt, _, _ in asked],
            [SamplingParams(n=n, max_tokens=length, **sampling) for _, n, length in asked],
            use_tqdm=False,
        )

    def sleep(self) -> None:
        """Weights to the processor's memory, cache away."""
        self.llm.sleep(level=1)

    def wake(self) -> None:
        """Is ready again."""
        self.llm.wake_up()

    def close(self) -> None:
        """Ends its processes."""
        self.llm = None
        gc.collect()
