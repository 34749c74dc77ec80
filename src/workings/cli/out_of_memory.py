"""An out-of-memory error as a list of what to do, in order, with the exact settings of the run.

The order is fixed: the engine's share of the card, samples per prompt, smaller microbatches, the
allocator, shorter sequences, then what costs time (activations computed again, the optimizer in CPU
memory), then what changes the method (LoRA, a quantised base). A remedy that this run has already
taken, or that its settings do not allow, is left out; so is what spares the trainer's memory where
an engine ran out of memory that it does not share with the trainer. Imports no torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from pydantic import ValidationError

from workings.config.pipeline import PipelineConfig
from workings.config.section import RunSection
from workings.errors import EngineError, EngineMemoryError, TrainingError, WorkingsError

ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
ALLOCATOR_SETTING = "expandable_segments:True"
ALLOCATOR_REMEDY = (
    f"{ALLOCATOR_VARIABLES[1]}={ALLOCATOR_SETTING} in the environment: freed memory is used again "
    "whatever its shape"
)
USUAL_SHARE = 0.7
UNSETTLED_TOKENS = 4096
"""Proposed where memory ran out before batch.microbatch_tokens=auto had become a number."""
_PLACES = (
    ("workings.rollout", "sampling"),
    ("workings.training.step", "training"),
    ("workings.training.offloaded", "training"),
    ("workings.models.load", "loading the model"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A setting to change, its present value, and what that does."""

    setting: str
    value: object
    present: object
    effect: str

    def __str__(self) -> str:
        value, present = _text(self.value), _text(self.present)
        return f"{self.setting}={value} (now {present}): {self.effect}"


def explained(error: BaseException, run: RunSection) -> WorkingsError:
    """The same with its remedies: an EngineError where samples are drawn, else a TrainingError.

    `run` is what the command was given; of a pipeline, the phase that failed is found in the
    error's traceback.
    """
    phase, prefix = _phase(run, error.__traceback__)
    place = _place(error.__traceback__)
    wanted = list(
        remedies(
            _as_settled(phase, error.__traceback__),
            environment=os.environ,
            prefix=prefix,
            elsewhere=isinstance(error, EngineMemoryError) and _is_elsewhere(phase),
        )
    )
    if isinstance(error, EngineMemoryError) and error.hint is not None:
        wanted.insert(0, error.hint)
    hint = "in this order:" + "".join(f"\n  {n}. {line}" for n, line in enumerate(wanted, 1))
    kind = TrainingError if hasattr(phase, "optimizer") and place != "sampling" else EngineError
    return kind(
        f"out of memory{f' while {place}' if place else ''}: {_what_happened(error)}",
        hint=hint if wanted else None,
    )


def remedies(
    run: Any,
    *,
    environment: Mapping[str, str] | None = None,
    prefix: str = "",
    elsewhere: bool = False,
) -> Iterator[str]:
    """What to do for a run of one kind, one line each, in order; settings get `prefix`.

    `elsewhere` says that the memory is the engine's alone, on a server or a device of its own.
    """
    for proposal in _engines_proposals(run) if elsewhere else _proposals(run):
        if isinstance(proposal, str):
            variables = environment or {}
            if not any(ALLOCATOR_SETTING in variables.get(v, "") for v in ALLOCATOR_VARIABLES):
                yield proposal
        elif _is_valid(run, proposal):
            yield f"{prefix}{proposal}"


def _proposals(run: Any) -> Iterator[Remedy | str]:
    """All remedies that a run of this kind has, whether its settings allow them or not."""
    model, batch = run.model, getattr(run, "batch", None)
    on_cpu = model.device == "cpu"
    engine, sampling = getattr(run, "engine", None), getattr(run, "sampling", None)
    if engine is not None and not on_cpu and engine.name != "server":
        yield from _engine_share(engine)
    yield from _fewer_samples(run)
    if batch is not None:
        yield from _smaller_microbatches(batch)
    elif engine is not None:
        yield from _smaller_batches(engine)
    if not on_cpu:
        yield ALLOCATOR_REMEDY
    yield from _shorter_sequences(run, sampling)
    if hasattr(run, "optimizer"):
        yield from _time_for_memory(run)
        yield from _other_methods(model)


def _engines_proposals(run: Any) -> Iterator[Remedy | str]:
    """Remedies for an engine that shares no memory with the trainer."""
    engine = run.engine
    on_card = engine.name != "server" and engine.device != "cpu"
    if on_card:
        yield from _smaller_cache(engine)
    yield from _fewer_samples(run)
    yield from _smaller_batches(engine)
    if on_card:
        yield ALLOCATOR_REMEDY
    if hasattr(run, "sampling"):
        yield from _shorter_sequences(run, run.sampling)


def _engine_share(engine: Any) -> Iterator[Remedy]:
    if not engine.sleep:
        yield Remedy(
            setting="engine.sleep",
            value=True,
            present=False,
            effect="the engine's cache is given back while the trainer works",
        )
    yield from _smaller_cache(engine)


def _smaller_cache(engine: Any) -> Iterator[Remedy]:
    share = engine.gpu_memory_utilization
    if share > 0.1:
        lower = USUAL_SHARE if share > USUAL_SHARE else round(0.7 * share, 2)
        yield Remedy(
            setting="engine.gpu_memory_utilization",
            value=lower,
            present=share,
            effect="a smaller key-value cache",
        )


def _fewer_samples(run: Any) -> Iterator[Remedy]:
    if getattr(run, "num_generations", 0) > 2:
        yield Remedy(
            setting="num_generations",
            value=max(2, run.num_generations // 2),
            present=run.num_generations,
            effect="fewer samples at once, in smaller groups",
        )


def _smaller_microbatches(batch: Any) -> Iterator[Remedy]:
    effect = "twice as many microbatches (accumulation), the same step"
    if batch.microbatch_rows is not None and batch.microbatch_rows > 1:
        yield Remedy(
            setting="batch.microbatch_rows",
            value=batch.microbatch_rows // 2,
            present=batch.microbatch_rows,
            effect=effect,
        )
    tokens = batch.microbatch_tokens
    if tokens == "auto" or tokens > 1:
        yield Remedy(
            setting="batch.microbatch_tokens",
            value=UNSETTLED_TOKENS if tokens == "auto" else tokens // 2,
            present=tokens,
            effect=effect if tokens != "auto" else "a small one, in place of what the card allows",
        )


def _smaller_batches(engine: Any) -> Iterator[Remedy]:
    rows = engine.max_batch_size
    if rows != 1:
        yield Remedy(
            setting="engine.max_batch_size",
            value=64 if rows is None else rows // 2,
            present=rows,
            effect="fewer rows decoded at once",
        )


def _shorter_sequences(run: Any, sampling: Any) -> Iterator[Remedy]:
    data = getattr(run, "data", None)
    if sampling is not None and sampling.max_tokens > 1:
        yield Remedy(
            setting="sampling.max_tokens",
            value=sampling.max_tokens // 2,
            present=sampling.max_tokens,
            effect="shorter completions",
        )
    elif data is not None and hasattr(data, "max_response_length"):
        longest = data.max_response_length
        yield Remedy(
            setting="data.max_response_length",
            value=1024 if longest is None else max(1, longest // 2),
            present=longest,
            effect="longer rows are left out and counted",
        )


def _time_for_memory(run: Any) -> Iterator[Remedy]:
    how = run.batch.activation_checkpointing
    if how in ("none", "selective"):
        yield Remedy(
            setting="batch.activation_checkpointing",
            value="full",
            present=how,
            effect="layers are computed a second time instead of being kept",
        )
    elif how == "full":
        yield Remedy(
            setting="batch.activation_checkpointing",
            value="offloaded",
            present=how,
            effect="what is kept of a layer lies in CPU memory",
        )
    optimizer = run.optimizer
    if not optimizer.offload:
        yield Remedy(
            setting="optimizer.offload",
            value=True,
            present=False,
            effect="AdamW's state, and float32 weights, in CPU memory",
        )
    else:
        yield Remedy(
            setting="optimizer.offload_gradients",
            value=True,
            present=optimizer.offload_gradients,
            effect="gradients in CPU memory",
        )


def _other_methods(model: Any) -> Iterator[Remedy]:
    if model.lora is None and model.adapter is None:
        yield Remedy(
            setting="model.lora.rank",
            value=32,
            present=None,
            effect="adapters are trained instead of all weights",
        )
    elif model.quantization in ("auto", "none"):
        yield Remedy(
            setting="model.quantization",
            value="4bit",
            present=model.quantization,
            effect="the frozen base in 4 bits (QLoRA)",
        )


def _is_elsewhere(run: Any) -> bool:
    """Whether the engine's memory is not the trainer's: on a server, or a device of its own."""
    engine = getattr(run, "engine", None)
    return engine is not None and (engine.name == "server" or engine.device is not None)


def _is_valid(run: Any, remedy: Remedy) -> bool:
    """Whether the run may have the setting, and has another one now."""
    if remedy.value == remedy.present:
        return False
    values = run.model_dump()
    *path, last = remedy.setting.split(".")
    section = values
    for name in path:
        section[name] = section[name] or {}
        section = section[name]
    section[last] = remedy.value
    try:
        type(run).model_validate(values)
    except (WorkingsError, ValidationError):
        return False
    return True


def _phase(run: RunSection, traceback: TracebackType | None) -> tuple[Any, str]:
    """The run whose settings count, and what its settings are called by on the command line."""
    if not isinstance(run, PipelineConfig):
        return run, ""
    phases = {"sft": run.sft, "grpo": run.grpo}
    found = "grpo"
    while traceback is not None:
        config = traceback.tb_frame.f_locals.get("config")
        kind = getattr(config, "kind", None)
        if kind in phases:
            found = kind
        traceback = traceback.tb_next
    return phases[found], f"{found}."


def _as_settled(run: Any, traceback: TracebackType | None) -> Any:
    """The run with the number that `batch.microbatch_tokens=auto` had come to, where it had."""
    batch = getattr(run, "batch", None)
    if batch is None or batch.microbatch_tokens != "auto":
        return run
    while traceback is not None:
        config = traceback.tb_frame.f_locals.get("config")
        if isinstance(config, type(run)) and config.batch.microbatch_tokens != "auto":
            return config
        traceback = traceback.tb_next
    return run


def _place(traceback: TracebackType | None) -> str:
    """What was being done: the innermost place that is known."""
    found = ""
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__", "")
        for start, name in _PLACES:
            if module.startswith(start):
                found = name
        traceback = traceback.tb_next
    return found


def _what_happened(error: BaseException) -> str:
    """The first sentences of the error, which name sizes, in one line."""
    text = " ".join(str(getattr(error, "message", error)).split()) or type(error).__name__
    text = re.split(r" If reserved but unallocated| See documentation| Compile with", text)[0]
    return text if len(text) <= 400 else f"{text[:400]} ..."


def _text(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
