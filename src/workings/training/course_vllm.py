"""The course's two vLLM helpers: an engine beside the trainer, and new weights for it.

vLLM is an optional package (`pip install 'workings[vllm]'`). The engine runs in this process, which
is what lets weights be handed over without a file or a socket.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch

from workings.errors import ConfigError
from workings.models.weights import named_full_weights
from workings.rollout.engine import Engine
from workings.rollout.vllm_engine import vllm_class


def init_vllm(model_id: str, device: str, seed: int, gpu_memory_utilization: float = 0.85) -> Any:
    """A `vllm.LLM` in bfloat16 with prefix caching, in this process (course function 1.8).

    vLLM takes the first visible card, so `device` is "cuda" or "cuda:0"; the policy may be trained
    on another one. ConfigError where vLLM is not installed and for another device.
    """
    if device not in ("cuda", "cuda:0"):
        raise ConfigError(
            f"device={device!r}; vLLM in this process samples on the first visible card, cuda:0",
            hint="train on cuda:1 and sample on cuda:0, or order the cards by CUDA_VISIBLE_DEVICES",
        )
    llm_class = vllm_class("init_vllm")
    # In a process of its own the engine could not be given tensors of this one.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return llm_class(
        model=model_id,
        seed=seed,
        dtype="bfloat16",
        enable_prefix_caching=True,
        gpu_memory_utilization=gpu_memory_utilization,
    )


def load_policy_into_vllm_instance(policy: Any, llm: Any) -> None:
    """Give the sampler the policy's weights, a LoRA adapter merged out of place.

    `llm` is what `init_vllm` made, or one of our engines, whose weight version goes up by one.
    Cached prefixes of the old weights are dropped.
    """
    if type(llm).__module__.partition(".")[0] != "vllm":
        engine: Engine = llm
        engine.load_weights(engine.weight_version + 1, named_full_weights(policy))
        return

    def load(model: Any) -> None:
        model.load_weights(_on_card(policy, next(model.parameters()).device))

    llm.apply_model(load)
    llm.reset_prefix_cache()


def _on_card(policy: Any, device: torch.device) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in named_full_weights(policy):
        yield name, tensor.to(device)
