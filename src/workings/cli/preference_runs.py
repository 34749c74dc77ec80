"""A DPO run, from a resolved configuration to a trained model in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workings.cli.build import (
    Log,
    Prompting,
    build_policy,
    describe_limited,
    describe_loaded,
    set_threads,
    training_prompting,
)
from workings.cli.folders import model_card
from workings.cli.runs import recorded
from workings.config.dpo import DPOConfig
from workings.config.dump import dump_yaml
from workings.config.sections import DatasetConfig
from workings.data.benchmarks import row_arguments
from workings.data.encoding import EncodedPair, encode_preferences
from workings.data.lengths import limit_pairs
from workings.data.loaded import Loaded
from workings.data.loading import load_preferences
from workings.data.split import take, train_validation_split
from workings.errors import DataError
from workings.seeds import derive_seed
from workings.training.checkpointer import Checkpointer
from workings.training.dpo import train_dpo
from workings.training.pair_reference import FILE_NAME
from workings.training.progress import TrainResult
from workings.training.stop import stop_on_signals
from workings.types import PreferencePair


def run_dpo(config: DPOConfig, *, resume: str | None = None) -> tuple[TrainResult, Path]:
    """The result of a run on preference pairs, and the folder of its final model."""
    set_threads(config.num_threads)
    known = config.max_steps if config.max_seconds is None else None
    with (
        recorded(config, resume=resume, total_steps=known or 0) as (paths, recorder),
        stop_on_signals() as stop,
    ):
        policy = build_policy(
            config.model, seed=config.seed, masters_elsewhere=config.optimizer.offload
        )
        for line in policy.report:
            recorder.log(line)
        if config.model.lora is not None and config.model.lora.dropout > 0:
            recorder.warn(
                "LoRA dropout is on in training and off in the reference, so rewards are noisy "
                "from the first step on; set model.lora.dropout=0"
            )
        prompting = training_prompting(config.data, policy.tokenizer)
        train, held_out = split_pairs(
            config, preferences_at(config.data.train, seed=config.seed, log=recorder.log).items
        )
        if config.data.validation is not None:
            held_out = list(
                preferences_at(config.data.validation, seed=config.seed, log=recorder.log).items
            )
        held_out = take(
            held_out, config.evaluation.limit, seed=derive_seed(config.seed, "validation")
        )
        if config.evaluation.every_steps and not held_out:
            recorder.warn(
                "evaluation is on, but there are no validation pairs; set data.validation, "
                "data.validation_fraction or validation_pairs"
            )
        checkpointer = Checkpointer(
            paths,
            policy.tokenizer,
            recorder,
            kind=config.kind,
            config_text=dump_yaml(config),
            resume=resume,
            save_total_limit=config.checkpoint.save_total_limit,
            keep_best=config.checkpoint.keep_best,
            at_end=config.checkpoint.at_end,
            model_card=model_card(config, kind=config.kind, base=config.model.name_or_path),
        )
        result = train_dpo(
            config,
            model=policy.model,
            pairs=encoded_pairs(config, prompting, train, recorder.log, what="training pairs"),
            validation=encoded_pairs(
                config, prompting, held_out, recorder.log, what="validation pairs"
            ),
            recorder=recorder,
            checkpointer=checkpointer,
            stop=stop,
            reference_file=paths.folder / FILE_NAME,
            template=f"{prompting.template} {prompting.system_prompt} "
            f"{policy.tokenizer.chat_template}",
            autocast=policy.autocast,
            pad_id=policy.pad_id,
        )
        return result, paths.final


def preferences_at(config: DatasetConfig, *, seed: int, log: Log) -> Loaded[PreferencePair]:
    """The preference pairs of a data set."""
    loaded = load_preferences(**row_arguments(config), seed=seed)
    log(describe_loaded(loaded))
    return loaded


def split_pairs(
    config: DPOConfig, pairs: Sequence[PreferencePair]
) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """Training and validation pairs (none without a share); no question is on both sides."""
    data = config.data
    fraction = data.validation_fraction
    if config.validation_pairs is not None:
        if config.validation_pairs >= len(pairs):
            raise DataError(
                f"validation_pairs={config.validation_pairs} of {len(pairs)} pairs leaves nothing "
                "to train",
                hint="lower validation_pairs",
            )
        fraction = config.validation_pairs / len(pairs)
    if data.validation is not None or not fraction:
        return list(pairs), []
    return train_validation_split(
        pairs, validation_fraction=fraction, seed=derive_seed(config.seed, "split")
    )


def encoded_pairs(
    config: DPOConfig,
    prompting: Prompting,
    pairs: Sequence[PreferencePair],
    log: Log,
    *,
    what: str,
) -> tuple[EncodedPair, ...]:
    """The encoded pairs within the limits on length; what was dropped or cut is said."""
    if not pairs:
        return ()
    encoded = encode_preferences(
        pairs, prompting.template, prompting.tokenizer, system_prompt=prompting.system_prompt
    )
    if encoded.num_with_special_text:
        log(
            f"{what}: {encoded.num_with_special_text} pairs spell a control token; "
            "it is read as plain text"
        )
    limited = limit_pairs(
        encoded.items,
        max_prompt_length=prompting.max_length,
        percentile=prompting.percentile,
        max_response_length=config.data.max_response_length,
        on_overlong=prompting.overlong,
    )
    log(describe_limited(limited, what))
    return limited.kept
