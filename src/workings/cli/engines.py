"""Which engine a run has, in the trainer's process or in one of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from workings.cli.build import Policy, build_policy
from workings.config.sections import EngineConfig, ModelConfig
from workings.errors import EngineError
from workings.models.weights import base_model, named_full_weights
from workings.rollout.engine import Engine
from workings.rollout.paged.architecture import architecture_of
from workings.rollout.paged.engine import PagedEngine
from workings.rollout.process_engine import ProcessEngine
from workings.rollout.select import EngineChoice, choose_engine, rows_at_once
from workings.rollout.server_engine import ServerEngine
from workings.rollout.transformers_engine import TransformersEngine
from workings.rollout.vllm_engine import VLLMEngine
from workings.training.distributed import Ranks

VISIBLE = "CUDA_VISIBLE_DEVICES"


def build_engine(config: EngineConfig, policy: Policy) -> tuple[Engine, str]:
    """The engine of a run with the policy's weights, and one line on which and why."""
    device = str(policy.device) if config.device is None else config.device
    choice = _chosen(config, policy, device)
    line = f"engine: {choice.name} ({choice.reason})"
    if choice.name == "server":
        server = _server(config, policy)
        return with_weights(server, policy), f"{line}: {server.where}"
    if not config.own_process:
        return engine_here(config, policy), line
    engine = ProcessEngine(
        EngineBuild(
            engine=config.model_copy(update={"own_process": False, "device": None}),
            model=policy.config,
            device=device,
            num_threads=torch.get_num_threads(),
        )
    )
    return with_weights(engine, policy), f"{line}, in a process of its own on {device}"


def with_weights(engine: Engine, policy: Policy) -> Engine:
    """An engine elsewhere, with the policy's weights; it is closed where it does not take them."""
    try:
        engine.load_weights(0, named_full_weights(policy.model))
    except BaseException:
        engine.close()
        raise
    return engine


def _server(config: EngineConfig, policy: Policy) -> ServerEngine:
    assert config.server_url is not None  # EngineConfig sees to it
    return ServerEngine(
        config.server_url,
        policy.model,
        policy.tokenizer,
        eos_token_ids=policy.eos_token_ids,
        lora_by_adapter=config.lora_by_adapter,
        connect_seconds=config.connect_seconds,
        generate_seconds=config.generate_seconds,
        sync_seconds=config.sync_seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBuild:
    """Builds the engine in its own process, from the model that the trainer's was loaded from.

    Adapters are left out: the trainer sends its weights merged, and whole.
    """

    engine: EngineConfig
    model: ModelConfig
    device: str
    num_threads: int

    def __call__(self) -> Engine:
        """The engine, with weights that are not yet the trainer's."""
        torch.set_num_threads(self.num_threads)
        device = only_card(self.device)
        plain = {"adapter": None, "lora": None, "quantization": "none", "device": device}
        model = self.model.model_copy(update=plain)
        return engine_here(self.engine, build_policy(model, seed=0, trainable=False), alone=True)


def only_card(device: str) -> str:
    """The device as this process is to name it, which sees no other card from now on.

    An engine takes the first card that it sees (vLLM, kernels that are compiled for the current
    one), so that "cuda:1" becomes "cuda" with all others hidden. To be called before CUDA is used.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda" or not number:
        return device
    visible = [card for card in os.environ.get(VISIBLE, "").split(",") if card]
    if not number.isdecimal() or (visible and int(number) >= len(visible)):
        raise EngineError(
            f"engine.device={device}: there is no such card; {VISIBLE}={','.join(visible)}",
            hint="cards are counted from 0 among the visible ones",
        )
    os.environ[VISIBLE] = visible[int(number)] if visible else number
    return kind


def _chosen(config: EngineConfig, policy: Policy, device: str) -> EngineChoice:
    try:
        architecture_of(policy.model)
        not_paged = None
    except EngineError as error:
        not_paged = error.message
    return choose_engine(
        config.name, device=device, not_paged=not_paged, num_ranks=Ranks.current().size
    )


def engine_here(config: EngineConfig, policy: Policy, *, alone: bool = False) -> Engine:
    """The engine in this process; `alone` where nothing trains the policy's weights here."""
    choice = _chosen(config, policy, str(policy.device))
    rows = rows_at_once(config.max_batch_size, choice.name, policy.device.type)
    dtype = sampling_dtype(config.dtype, policy)
    if choice.name == "paged":
        return PagedEngine(
            policy.model,
            policy.tokenizer,
            eos_token_ids=policy.eos_token_ids,
            max_batch_size=config.max_batch_size,
            dtype=dtype,
            memory_utilization=config.gpu_memory_utilization,
        )
    if choice.name == "vllm":
        return VLLMEngine(
            policy.model,
            policy.tokenizer,
            eos_token_ids=policy.eos_token_ids,
            max_batch_size=rows,
            dtype=dtype,
            gpu_memory_utilization=config.gpu_memory_utilization,
            max_model_len=config.max_model_len,
            enforce_eager=config.enforce_eager,
            lora_by_adapter=config.lora_by_adapter,
        )
    return TransformersEngine(
        policy.model,
        policy.tokenizer,
        eos_token_ids=policy.eos_token_ids,
        max_batch_size=rows,
        share_weights=not alone,
        sampling_dtype=dtype if alone else None,
    )


def sampling_dtype(name: str, policy: Policy) -> torch.dtype:
    """The dtype of an engine's own weights: as named, or ("auto") what training computes in."""
    if name != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]
    if policy.autocast is not None:
        return policy.autocast
    dtype: torch.dtype = base_model(policy.model).dtype
    return dtype
