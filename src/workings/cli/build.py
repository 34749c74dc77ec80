"""From configuration to objects. Nothing else in the package does this.

Each function takes the section it needs and returns one ready part. What was chosen, dropped or
cut on the way goes to the recorder's log, so that nothing happens in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import torch

from workings.cli.light_parts import build_grader as build_grader
from workings.cli.light_parts import build_run_reward as build_run_reward
from workings.cli.light_parts import build_sampling as build_sampling
from workings.cli.light_parts import dataset_name as dataset_name
from workings.cli.light_parts import evaluation_settings as evaluation_settings
from workings.config.sections import DataConfig, DatasetConfig, ModelConfig, TrackingConfig
from workings.data.benchmarks import problem_arguments, row_arguments
from workings.data.demonstrations import problems_of
from workings.data.encoding import (
    EncodedDemonstration,
    TrainedTokens,
    encode_demonstrations,
    encode_prompts,
)
from workings.data.lengths import Limited, limit_demonstrations, limit_prompts
from workings.data.loaded import Loaded
from workings.data.loading import load_demonstrations, load_problems
from workings.data.shortening import shorten_prompt
from workings.data.split import take, train_validation_split
from workings.data.tags import Tags, tag_demonstrations
from workings.data.templates import PromptTemplate, load_template, tag_template
from workings.grading.grader import Grader
from workings.models.load import LoadedModel, load_model
from workings.models.lora import adapter_base, add_lora
from workings.models.source import resolve_source
from workings.models.tokenizer import load_tokenizer
from workings.models.weights import has_adapter
from workings.seeds import derive_seed
from workings.tracking.console import ConsoleSink
from workings.tracking.recorder import Recorder, Sink
from workings.types import Demonstration, Problem, Prompt

Log = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The model to train or to sample, with what the loops need to know about it.

    `autocast` is bfloat16 where the arithmetic runs in it, else None.
    """

    model: Any
    tokenizer: Any
    eos_token_ids: tuple[int, ...]
    pad_id: int
    device: torch.device
    autocast: torch.dtype | None
    report: tuple[str, ...]
    config: ModelConfig


def build_policy(
    config: ModelConfig, *, seed: int, trainable: bool = True, masters_elsewhere: bool = False
) -> Policy:
    """The model with its adapter, if any, on its device.

    Weights are float32, and in the dtype of the arithmetic where no update could be lost: a base
    that stays frozen under an adapter that is trained, and `masters_elsewhere`, under an optimizer
    that keeps float32 masters.
    """
    frozen_base = config.lora is not None or config.adapter is not None
    loaded: LoadedModel = load_model(
        config.name_or_path,
        dtype=config.dtype,
        attention=config.attention,
        device=config.device,
        adapter=config.adapter,
        adapter_trainable=trainable,
        weights="arithmetic" if trainable and (frozen_base or masters_elsewhere) else "float32",
        quantization=config.quantization,
        chat_template=config.chat_template,
        trust_remote_code=config.trust_remote_code,
    )
    model, report = loaded.model, list(loaded.report)
    if config.lora is not None and trainable and not has_adapter(model):
        lora = config.lora
        model = add_lora(
            model,
            rank=lora.rank,
            alpha=lora.alpha,
            dropout=lora.dropout,
            targets=lora.targets,
            seed=derive_seed(seed, "lora"),
        )
        model.eval()
    if has_adapter(model):
        count = sum(p.numel() for p in model.parameters() if p.requires_grad)
        report.append(f"LoRA: {count:,} trainable parameters")
    return Policy(
        model=model,
        tokenizer=loaded.tokenizer,
        eos_token_ids=loaded.eos_token_ids,
        pad_id=loaded.tokenizer.pad_token_id,
        device=loaded.device,
        autocast=None if loaded.compute_dtype == torch.float32 else loaded.compute_dtype,
        report=tuple(report),
        config=config,
    )


def build_tokenizer(config: ModelConfig) -> Any:
    """The tokenizer alone, for what needs no weights."""
    source = resolve_source(config.name_or_path)
    path = config.name_or_path
    if source.kind == "adapter" and not (Path(source.location) / "tokenizer.json").is_file():
        path = adapter_base(source.location)
    return load_tokenizer(
        path, chat_template=config.chat_template, trust_remote_code=config.trust_remote_code
    )


def build_template(
    name: str, tokenizer: Any, *, system_prompt: str | None
) -> tuple[PromptTemplate, str | None]:
    """The template, and the system prompt that is still to be given when encoding.

    A template that brings its own chat template puts it on the tokenizer, so that it is saved with
    the model. The tag template takes the system prompt into itself.
    """
    template = load_template(name)
    if name == "tags" and system_prompt is not None:
        template, system_prompt = tag_template(tags=Tags(), system_prompt=system_prompt), None
    if template.chat_template is not None:
        tokenizer.chat_template = template.chat_template
    return template, system_prompt


def problems_at(
    config: DatasetConfig, *, seed: int, grader: Grader, bad_gold: Any, log: Log
) -> Loaded[Problem]:
    """The problems of a data set; their golds are checked."""
    arguments = {"bad_gold": bad_gold, **problem_arguments(config)}
    loaded = load_problems(**arguments, seed=seed, check_gold=grader.check_gold)
    log(describe_loaded(loaded))
    for note in (*loaded.notes, *([config.note] if config.note else ())):
        log(f"note: {note}")
    return loaded


def demonstrations_at(config: DatasetConfig, *, seed: int, log: Log) -> Loaded[Demonstration]:
    """The demonstrations of a data set."""
    loaded = load_demonstrations(**row_arguments(config), seed=seed)
    log(describe_loaded(loaded))
    return loaded


def describe_loaded(loaded: Loaded[Any]) -> str:
    """One line: how many rows of what, from which columns, and what was dropped and why."""
    text = f"data: {len(loaded.items):,} of {loaded.total:,} rows from {loaded.origin}"
    if loaded.mapping:
        text += " (" + ", ".join(f"{r} = {c}" for r, c in sorted(loaded.mapping.items())) + ")"
    if loaded.dropped:
        dropped = ", ".join(f"{reason} {n:,}" for reason, n in sorted(loaded.dropped.items()) if n)
        text += f"; left out: {dropped}"
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompting:
    """How questions become prompts in this run."""

    template: PromptTemplate
    system_prompt: str | None
    tokenizer: Any
    max_length: int | None = None
    percentile: float | None = None
    overlong: Any = "drop"

    def prompts(self, problems: Sequence[Problem], log: Log, *, what: str) -> tuple[Prompt, ...]:
        """The encoded prompts within the length limit."""
        encoded = encode_prompts(
            problems, self.template, self.tokenizer, system_prompt=self.system_prompt
        )
        if encoded.num_with_special_text:
            log(
                f"{what}: {encoded.num_with_special_text} questions spell a control token; "
                "it is read as plain text"
            )
        limited = limit_prompts(
            encoded.items,
            max_length=self.max_length,
            percentile=self.percentile,
            on_overlong=self.overlong,
            shorten=lambda prompt, limit: shorten_prompt(
                prompt, limit, self.template, self.tokenizer, system_prompt=self.system_prompt
            ),
        )
        log(describe_limited(limited, what))
        return limited.kept

    def demonstrations(
        self,
        rows: Sequence[Demonstration],
        log: Log,
        *,
        max_response_length: int | None,
        trained_tokens: TrainedTokens = "completion",
    ) -> tuple[EncodedDemonstration, ...]:
        """The encoded demonstrations within the length limits.

        Under the tag template a response without tags is written in them first.
        """
        if self.template.name == "tags":
            rows = _in_tags(rows, Tags())
        encoded = encode_demonstrations(
            rows,
            self.template,
            self.tokenizer,
            system_prompt=self.system_prompt,
            find_assistant_turns=trained_tokens == "assistant",
        )
        limited = limit_demonstrations(
            encoded.items,
            max_prompt_length=self.max_length,
            max_response_length=max_response_length,
            on_overlong=self.overlong,
        )
        log(describe_limited(limited, "demonstrations"))
        return limited.kept


def _in_tags(rows: Sequence[Demonstration], tags: Tags) -> list[Demonstration]:
    is_plain = [tags.solution_start not in row.response for row in rows]
    tagged = iter(tag_demonstrations(list(compress(rows, is_plain)), tags))
    return [next(tagged) if plain else row for row, plain in zip(rows, is_plain, strict=True)]


def build_prompting(
    template_name: str,
    tokenizer: Any,
    *,
    system_prompt: str | None,
    max_length: int | None = None,
    percentile: float | None = None,
    overlong: Any = "drop",
) -> Prompting:
    """The prompting by a template's name, within the limits on length."""
    template, system_prompt = build_template(template_name, tokenizer, system_prompt=system_prompt)
    return Prompting(
        template=template,
        system_prompt=system_prompt,
        tokenizer=tokenizer,
        max_length=max_length,
        percentile=percentile,
        overlong=overlong,
    )


def training_prompting(data: DataConfig, tokenizer: Any) -> Prompting:
    """The prompting of a training run."""
    return build_prompting(
        data.template,
        tokenizer,
        system_prompt=data.system_prompt,
        max_length=data.max_prompt_length,
        percentile=data.prompt_length_percentile,
        overlong=data.overlong,
    )


def describe_limited(limited: Limited[Any], what: str) -> str:
    text = f"{what}: {len(limited.kept):,} rows, the longest of {limited.longest} tokens"
    touched = limited.num_dropped + limited.num_truncated
    if limited.limit is not None or touched:
        limit = "over a limit" if limited.limit is None else f"limit {limited.limit}"
        text += f"; {limit}: {limited.num_dropped:,} dropped, {limited.num_truncated:,} truncated"
    return text


def split_demonstrations(
    data: DataConfig, rows: Sequence[Demonstration], *, seed: int
) -> tuple[list[Demonstration], list[Problem]]:
    """Training rows, and validation problems held out of them (none without a fraction)."""
    if data.validation is not None or not data.validation_fraction:
        return list(rows), []
    train, held_out = train_validation_split(
        rows, validation_fraction=data.validation_fraction, seed=derive_seed(seed, "split")
    )
    return train, problems_of(held_out)


def split_problems(
    data: DataConfig, problems: Sequence[Problem], *, seed: int
) -> tuple[list[Problem], list[Problem]]:
    """Training and validation problems (none without a fraction)."""
    if data.validation is not None or not data.validation_fraction:
        return list(problems), []
    return train_validation_split(
        problems, validation_fraction=data.validation_fraction, seed=derive_seed(seed, "split")
    )


def limited_problems(
    problems: Sequence[Problem], limit: int | None, *, seed: int
) -> Sequence[Problem]:
    """A seeded subset for validation, the same in every evaluation of the run."""
    return take(problems, limit, seed=derive_seed(seed, "validation"))


def build_recorder(
    config: TrackingConfig,
    folder: Path,
    *,
    name: str,
    total_steps: int,
    settings: Mapping[str, Any],
) -> Recorder:
    """The recorder with the sinks that the run asks for."""
    sinks: list[Sink] = []
    if config.console:
        sinks.append(
            ConsoleSink(total_steps=total_steps, name=name, logging_steps=config.logging_steps)
        )
    if config.tensorboard:
        from workings.tracking.tensorboard import TensorBoardSink

        sinks.append(TensorBoardSink(folder / "tensorboard"))
    if config.wandb:
        from workings.tracking.wandb import WandbSink

        sinks.append(
            WandbSink(
                folder,
                project=config.wandb_project,
                name=name,
                entity=config.wandb_entity,
                mode=config.wandb_mode,
                config=settings,
            )
        )
    return Recorder(
        folder,
        sinks,
        logging_steps=config.logging_steps,
        save_rollouts_every=config.save_rollouts_every,
    )


def set_threads(num_threads: int) -> None:
    """Give torch so many CPU threads; 0 leaves it alone."""
    if num_threads:
        torch.set_num_threads(num_threads)
