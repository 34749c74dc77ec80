"""How many tokens a microbatch takes where a run leaves it open (`batch.microbatch_tokens=auto`).

Settled once, when a run begins and model and device are known: a small model on a large card is
bound by launches, a large one by memory, and no one number suits both. A resumed run takes the
number of its checkpoint. On a CPU, where memory is seldom short and launches cost little, it is
always the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from workings.config.dpo import DPOConfig
from workings.config.expert_iteration import ExpertIterationConfig
from workings.config.grpo import GRPOConfig
from workings.config.sections import EngineConfig
from workings.config.sft import SFTConfig
from workings.models.weights import base_model
from workings.objectives.logits_memory import usable_memory
from workings.objectives.logprobs import HALF
from workings.rollout.select import rows_at_once
from workings.tracking.recorder import Recorder
from workings.training.checkpointer import Checkpointer
from workings.training.compute_weights import copied_weights
from workings.training.distributed import Ranks
from workings.training.forward import choose_layout
from workings.training.layers import best_kernels
from workings.training.memory_estimate import (
    Activations,
    MemoryEstimate,
    Widths,
    cache_bytes,
    engine_bytes,
    optimizer_bytes,
    widths_of,
)
from workings.training.packing import Layout
from workings.training.reference import adapter_adds_nothing
from workings.training.source import Guidance
from workings.types import Prompt

CPU_TOKENS = 8192
MOST_TOKENS = 65536
"""Beyond it nothing is gained: a layer of the smallest models computes this many tokens for a
millisecond and more, and its kernels are launched in a tenth of that."""
MASKED_TOKENS = 8192
"""Most where rows are kept apart by a mask, whose size is the square of a lane's width."""
MARGIN = 0.08
"""Share of the memory left alone, for CUDA's context and what the allocator cannot use."""
_STEP = 256

Run = TypeVar("Run", SFTConfig, DPOConfig, GRPOConfig, ExpertIterationConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A number of tokens and why; `tight` where the estimate allows less."""

    tokens: int
    reason: str
    tight: bool = False

    def __str__(self) -> str:
        return (
            f"microbatches of {self.tokens:,} tokens (batch.microbatch_tokens=auto: {self.reason})"
        )


def choose_tokens(
    activations: Activations, *, total: int, lasting: int, longest_row: int, masked: bool = False
) -> Choice:
    """The largest microbatch for a GPU of `total` bytes, of which `lasting` are taken in training.

    At least the longest row, which has to fit anyway; at most what is of use. `masked`: rows are
    kept apart by a mask.
    """
    free = max(0, int((1 - MARGIN) * total) - lasting)
    most = MASKED_TOKENS if masked else MOST_TOKENS
    fitting = activations.most_tokens(free, most=most)
    room = (
        f"{max(0, free) / 2**30:.1f} of {total / 2**30:.1f} GiB are left for activations with "
        f"checkpointing {activations.checkpointing}"
    )
    if fitting < longest_row:
        if fitting == most:
            return Choice(tokens=longest_row, reason=f"the longest row; {room}")
        reason = f"the longest row, although about {fitting:,} tokens fit by the estimate; {room}"
        return Choice(tokens=longest_row, reason=reason, tight=True)
    if fitting == most:
        why = "a mask grows with its square" if masked else "more would gain nothing"
        return Choice(tokens=fitting, reason=f"{room}; {why}")
    rounded = max(fitting // _STEP * _STEP, longest_row)
    return Choice(tokens=rounded, reason=room)


def cpu_choice() -> Choice:
    """What every run on a CPU takes."""
    return Choice(tokens=CPU_TOKENS, reason="as always on a CPU")


def settled(
    config: Run,
    model: nn.Module,
    *,
    longest_row: int,
    checkpointer: Checkpointer,
    recorder: Recorder,
    autocast: torch.dtype | None = None,
    ranks: Ranks | None = None,
) -> Run:
    """The run with a number in the place of `batch.microbatch_tokens=auto`, which the log is told.

    The checkpoint that a run resumes from decides; else the memory of the model's device. Of
    several ranks all take the smallest. A run that has a number is given back as it is.
    """
    if config.batch.microbatch_tokens != "auto":
        return config
    restored = checkpointer.stored_state()
    if restored is not None and restored.microbatch_tokens:
        choice = Choice(tokens=restored.microbatch_tokens, reason="as the run has had it so far")
    else:
        choice = _choice(config, model, longest_row=longest_row, autocast=autocast)
        ranks = ranks or Ranks()
        choice = min(ranks.all_objects(choice), key=lambda one: one.tokens)
    (recorder.warn if choice.tight else recorder.log)(str(choice))
    batch = config.batch.model_copy(update={"microbatch_tokens": choice.tokens})
    return config.model_copy(update={"batch": batch})


def longest_sampled(
    prompts: Iterable[Prompt], *, max_tokens: int, guidance: Guidance | None = None
) -> int:
    """Tokens of the longest row that a run can sample, or take from its teacher."""
    traces = () if guidance is None else chain(*guidance.traces.values())
    longest = max((len(trace.ids) for trace in traces), default=0)
    return max(len(prompt.ids) for prompt in prompts) + max(max_tokens, longest)


def _choice(
    config: Run, model: nn.Module, *, longest_row: int, autocast: torch.dtype | None
) -> Choice:
    inner = base_model(model)
    device: torch.device = inner.get_input_embeddings().weight.device
    if device.type != "cuda":
        return cpu_choice()
    return gpu_choice(
        config,
        model,
        total=usable_memory(device),
        longest_row=longest_row,
        autocast=autocast,
    )


def gpu_choice(
    config: Run,
    model: nn.Module,
    *,
    total: int,
    longest_row: int,
    autocast: torch.dtype | None,
) -> Choice:
    """What a run takes for this model on a GPU of `total` bytes."""
    inner = base_model(model)
    layout = choose_layout(
        model, config.batch.layout, grouped=config.kind != "sft", autocast=autocast
    )
    activations = activations_of(
        config,
        inner.config,
        dtype=autocast or inner.dtype,
        total=total,
        fused=is_fused(config.model.kernels, model),
        eager_length=longest_row if inner.config._attn_implementation == "eager" else 0,
        adapters=_adapter_numbers(model),
    )
    lasting = lasting_of(config, model, activations, total=total, longest_row=longest_row)
    return choose_tokens(
        activations,
        total=total,
        lasting=lasting.training,
        longest_row=longest_row,
        masked=is_masked(layout),
    )


def is_masked(layout: Layout) -> bool:
    """True where lanes have a mask between their rows."""
    return layout in ("packed", "shared_prompt")


def is_fused(kernels: str, model: Any) -> bool:
    """True where the layers of a model on a GPU keep what fused kernels keep."""
    return (best_kernels(model) if kernels == "auto" else kernels) != "plain"


def activations_of(
    config: SFTConfig | DPOConfig | GRPOConfig | ExpertIterationConfig,
    model_config: Any,
    *,
    dtype: torch.dtype,
    total: int | None,
    fused: bool,
    eager_length: int = 0,
    adapters: float = 0.0,
) -> Activations:
    """The activations of a run of a model with this configuration; `total` is None on a CPU.

    `eager_length` is the length of the longest row under eager attention, 0 under any other.
    """
    widths = widths_of(model_config.get_text_config(), eager_length=eager_length, adapters=adapters)
    adapted = config.model.lora is not None or config.model.adapter is not None
    return Activations(
        widths=widths,
        checkpointing=config.batch.activation_checkpointing,
        fused=fused,
        number_bytes=dtype.itemsize,
        gpu_bytes=total if dtype in HALF else None,
        head_trained=not adapted,
    )


def engine_of(
    config: SFTConfig | DPOConfig | GRPOConfig | ExpertIterationConfig,
    widths: Widths,
    *,
    num_parameters: int,
    number_bytes: int,
    total: int,
    longest_row: int,
) -> int:
    """Bytes that the run's engine holds on the trainer's GPU while the trainer works."""
    engine: EngineConfig | None = getattr(config, "engine", None)
    if engine is None or (engine.own_process and engine.device is not None):
        return 0
    number_bytes = {"float32": 4, "bfloat16": 2}.get(engine.dtype, number_bytes)
    num_rows = rows_at_once(engine.max_batch_size, engine.name, "cuda")
    num_rows = min(num_rows, getattr(config, "rollout_batch_size", num_rows))
    rests = engine.rests and getattr(config, "schedule", "synchronous") == "synchronous"
    cache = cache_bytes(widths, num_rows * longest_row, number_bytes=number_bytes)
    return engine_bytes(
        engine.name,
        num_parameters=num_parameters,
        number_bytes=number_bytes,
        vocabulary=widths.vocabulary,
        num_rows=num_rows,
        awake_bytes=0 if rests else cache,
        share_bytes=int(engine.gpu_memory_utilization * total),
        own_process=engine.own_process,
    )


def lasting_of(
    config: Run, model: nn.Module, activations: Activations, *, total: int, longest_row: int
) -> MemoryEstimate:
    """What a model on a GPU holds in training, counted on its own tensors."""
    each = activations.number_bytes
    parameters = list(model.parameters())
    own: list[Tensor] = [_local(parameter) for parameter in parameters]
    trained = [_local(parameter) for parameter in parameters if parameter.requires_grad]
    num_trained = sum(parameter.numel() for parameter in trained)
    rates = config.optimizer
    gradients, state = optimizer_bytes(
        rates.name,
        num_trained,
        offload=rates.offload,
        offload_gradients=rates.offload_gradients,
        narrow=each < 4,
        on_gpu=True,
    )
    return MemoryEstimate(
        weights=sum(tensor.nbytes for tensor in [*own, *model.buffers()]),
        copies=sum(each * p.numel() for p in copied_weights(model, each)),
        gradients=gradients,
        optimizer=state,
        reference=sum(p.nbytes for p in trained) if _has_copy(config, model) else 0,
        engine=engine_of(
            config,
            activations.widths,
            num_parameters=base_model(model).num_parameters(),
            number_bytes=each,
            total=total,
            longest_row=longest_row,
        ),
        activations=0,
        kv_cache=0,
    )


def has_reference(config: SFTConfig | DPOConfig | GRPOConfig | ExpertIterationConfig) -> bool:
    """True where a model is held as it was at the start, for the whole run."""
    if isinstance(config, GRPOConfig):
        return config.objective.resolve().needs_reference
    return isinstance(config, DPOConfig) and config.reference == "live"


def _has_copy(config: Run, model: nn.Module) -> bool:
    return has_reference(config) and not adapter_adds_nothing(model)


def _local(parameter: nn.Parameter) -> Tensor:
    """This rank's part of a parameter that is sharded; the parameter itself elsewhere."""
    if hasattr(parameter, "to_local"):
        part: Tensor = parameter.to_local()
        return part
    return parameter


def _adapter_numbers(model: nn.Module) -> float:
    """Numbers of a token that LoRA keeps in a layer: its inner widths, and dropped-out inputs."""
    layers: int = base_model(model).config.get_text_config().num_hidden_layers
    numbers = 0.0
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and ".lora_A." in name:
            numbers += module.out_features
        elif isinstance(module, nn.Dropout) and ".lora_dropout." in name and module.p > 0:
            numbers += 1.5 * _inputs_of(model, name)
    return numbers / layers


def _inputs_of(model: nn.Module, dropout: str) -> int:
    linear = model.get_submodule(dropout.replace(".lora_dropout.", ".lora_A."))
    assert isinstance(linear, nn.Linear), "peft gives every adapter both, by one name"
    return linear.in_features
