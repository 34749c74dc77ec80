"""A stand-in for the parts of vLLM 0.23 that the engine calls: modules, an `LLM`, and its engine.

It samples "greedily" from a bigram table that stands for the weights, one token per request and
step, and reports as vLLM does: whole completions at the end, or pieces. What the tests look at is
how it was called.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch


class RequestOutputKind(Enum):
    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


class SamplingParams:
    def __init__(self, **settings: Any) -> None:
        self.__dict__.update(settings)


@dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str


@dataclass
class FlatLogprobs:
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


@dataclass
class Running:
    params: SamplingParams
    prompt: list[int]
    lora: Any
    ids: list[int] = field(default_factory=list)
    flat: FlatLogprobs = field(default_factory=FlatLogprobs)


class Sampler:
    logprobs_mode = "processed_logprobs"


class StandInModel(torch.nn.Module):
    """Knows the names of the weights that it was given, and the sum of the last ones."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        self.names = set(names)
        self.shift: int | None = 0

    def named_parameters(self, *arguments: Any, **options: Any) -> Iterator[tuple[str, Any]]:
        yield from ((name, None) for name in self.names)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        loaded, total = set(), 0.0
        for name, tensor in weights:
            if name not in self.names:
                raise ValueError(f"There is no module or parameter named {name!r}")
            loaded.add(name)
            total += float(tensor.double().abs().sum())
        self.shift = int(total * 1000) % 50
        return loaded


class StandInEngine:
    """As `LLMEngine` in this process."""

    def __init__(self, llm: StandIn) -> None:
        self.llm = llm
        self.running: dict[str, Running] = {}
        self.aborted: list[str] = []
        self.adapters: list[int] = []
        self.refuses = False
        worker = SimpleNamespace(
            model_runner=SimpleNamespace(
                sampler=Sampler(),
                device=torch.device("cpu"),
                model_config=None,
                get_model=lambda: llm.model,
            )
        )
        self.model_executor = SimpleNamespace(driver_worker=SimpleNamespace(worker=worker))
        self.engine_core = SimpleNamespace(shutdown=lambda: llm.calls.append("shutdown"))

    def add_request(self, name: str, prompt: Any, params: Any, *, lora_request: Any) -> None:
        if self.refuses and self.running:
            raise ValueError("the prompt is too long")
        self.running[name] = Running(params, prompt["prompt_token_ids"], lora_request)

    def has_unfinished_requests(self) -> bool:
        return bool(self.running)

    def abort_request(self, names: list[str]) -> None:
        self.aborted += names
        for name in names:
            self.running.pop(name, None)

    def step(self) -> list[Any]:
        if self.llm.breaks:
            raise RuntimeError("CUDA error: out of memory")
        outputs = []
        for name, row in list(self.running.items()):
            assert self.llm.model.shift is not None
            token = (row.prompt[-1] + 7 * len(row.ids) + self.llm.model.shift) % 90 + 5
            token = self.llm.script.get(len(row.ids), token)
            row.ids.append(token)
            row.flat.token_ids += [token, 0]
            row.flat.logprobs += [-0.5, 0.0]
            reason = None
            if token in row.params.stop_token_ids:
                reason = "stop"
            elif len(row.ids) == row.params.max_tokens:
                reason = "length"
            whole = row.params.output_kind is RequestOutputKind.FINAL_ONLY
            if reason is None and whole:
                continue
            piece = slice(None) if whole else slice(-1, None)
            flat = FlatLogprobs(row.flat.token_ids[piece], row.flat.logprobs[piece])
            if not whole:
                flat = FlatLogprobs(row.flat.token_ids[-2:], row.flat.logprobs[-2:])
            completion = SimpleNamespace(
                token_ids=row.ids[piece],
                logprobs=flat if row.params.logprobs is not None else None,
                finish_reason=reason,
            )
            outputs.append(SimpleNamespace(request_id=name, outputs=[completion]))
            if reason is not None:
                del self.running[name]
        return outputs

    def add_lora(self, request: LoRARequest) -> None:
        self.llm.calls.append(f"add_lora {request.lora_int_id}")
        self.adapters.append(request.lora_int_id)

    def remove_lora(self, number: int) -> None:
        self.llm.calls.append(f"remove_lora {number}")
        self.adapters.remove(number)


class StandIn:
    """As `vllm.LLM`."""

    made: StandIn
    names: tuple[str, ...] = ()
    fails: str = ""

    def __init__(self, **settings: Any) -> None:
        if type(self).fails:
            raise ValueError(type(self).fails)
        self.settings = settings
        self.calls: list[str] = []
        self.script: dict[int, int] = {}
        self.breaks = False
        self.resets = True
        self.model = StandInModel(type(self).names)
        self.llm_engine = StandInEngine(self)
        type(self).made = self

    def reset_prefix_cache(self) -> bool:
        self.calls.append("reset_prefix_cache")
        return self.resets

    def sleep(self, level: int) -> None:
        self.calls.append(f"sleep {level}")
        if level == 2:
            self.model.shift = None  # no weights to sample with

    def wake_up(self, tags: list[str]) -> None:
        self.calls.append(f"wake {','.join(tags)}")


def install(monkeypatch: pytest.MonkeyPatch, names: Iterable[str]) -> type[StandIn]:
    """Put the stand-in where `import vllm` finds it; `names` are the weights that it has."""

    class LLM(StandIn):
        pass

    LLM.names = tuple(names)
    modules = {
        "vllm": {"LLM": LLM, "SamplingParams": SamplingParams},
        "vllm.sampling_params": {"RequestOutputKind": RequestOutputKind},
        "vllm.lora": {},
        "vllm.lora.request": {"LoRARequest": LoRARequest},
        "vllm.model_executor": {},
        "vllm.model_executor.model_loader": {},
        "vllm.model_executor.model_loader.reload": {
            "initialize_layerwise_reload": lambda model: LLM.made.calls.append("begin reload"),
            "finalize_layerwise_reload": lambda model, config: LLM.made.calls.append("end reload"),
        },
    }
    for name, contents in modules.items():
        module = ModuleType(name)
        module.__dict__.update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    return LLM
