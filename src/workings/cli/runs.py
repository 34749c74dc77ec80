"""SFT and GRPO runs, from a resolved configuration to a trained model in a folder.

`workings sft`, `grpo`, `pipeline` and `quickstart` all go through these two functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from workings.cli.build import (
    Policy,
    Prompting,
    build_grader,
    build_policy,
    build_recorder,
    build_run_reward,
    demonstrations_at,
    set_threads,
    split_demonstrations,
    training_prompting,
)
from workings.cli.engines import build_engine
from workings.cli.evaluation.before_after import before_and_after
from workings.cli.evaluation.validation import Measuring, build_evaluator
from workings.cli.folders import model_card, open_folder, run_folder
from workings.config.dpo import DPOConfig
from workings.config.dump import dump_yaml, resolved
from workings.config.grpo import GRPOConfig
from workings.config.kinds import SamplingRun, TrainingRun
from workings.config.sft import SFTConfig
from workings.data.sampler import BatchSampler
from workings.grading.grader import Grader
from workings.rewards.reward import Reward
from workings.rollout.engine import Engine
from workings.seeds import derive_seed
from workings.tracking.alone import run_alone
from workings.tracking.recorder import Recorder
from workings.training.checkpointer import Checkpointer, RunPaths
from workings.training.progress import Evaluator, TrainResult
from workings.training.sft import train_sft
from workings.training.stop import StopRequest, stop_on_signals
from workings.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What every kind of training run is made of."""

    paths: RunPaths
    policy: Policy
    prompting: Prompting
    engine: Engine
    engine_name: str
    grader: Grader
    reward: Reward
    recorder: Recorder
    checkpointer: Checkpointer
    stop: StopRequest


def run_sft(config: SFTConfig, *, resume: str | None = None) -> tuple[TrainResult, Path]:
    """The result of a supervised run, and the folder of its final model."""
    set_threads(config.num_threads)
    known = config.max_steps if config.max_seconds is None else None
    with open_parts(config, resume=resume, total_steps=known or 0) as parts:
        log = parts.recorder.log
        rows = demonstrations_at(config.data.train, seed=config.seed, log=log).items
        train, held_out = split_demonstrations(config.data, rows, seed=config.seed)
        examples = BatchSampler(
            parts.prompting.demonstrations(
                train,
                log,
                max_response_length=config.data.max_response_length,
                trained_tokens=config.trained_tokens,
            ),
            batch_size=config.batch_size,
            seed=derive_seed(config.seed, "order"),
        )
        result = train_sft(
            config,
            model=parts.policy.model,
            examples=examples,
            recorder=parts.recorder,
            checkpointer=parts.checkpointer,
            stop=parts.stop,
            evaluate=validation_evaluator(config, parts, held_out),
            autocast=parts.policy.autocast,
            pad_id=parts.policy.pad_id,
        )
        return result, parts.paths.final


@contextmanager
def recorded(
    config: TrainingRun | DPOConfig, *, resume: str | None, total_steps: int
) -> Iterator[tuple[RunPaths, Recorder]]:
    """The paths and the recorder of a run that trains, and that alone writes into its folder."""
    with run_alone(run_folder(config)):
        paths, notes = open_folder(config, resume=resume)
        recorder = build_recorder(
            config.tracking,
            paths.folder,
            name=config.kind,
            total_steps=total_steps,
            settings=resolved(config),
        )
        with recorder:
            for note in notes:
                recorder.warn(note)
            yield paths, recorder


@contextmanager
def open_parts(config: TrainingRun, *, resume: str | None, total_steps: int) -> Iterator[Parts]:
    """The parts of a run, closed whatever happens."""
    with (
        recorded(config, resume=resume, total_steps=total_steps) as (paths, recorder),
        build_grader(config.grader) as grader,
        stop_on_signals() as stop,
    ):
        policy = build_policy(
            config.model, seed=config.seed, masters_elsewhere=config.optimizer.offload
        )
        for line in policy.report:
            recorder.log(line)
        prompting = training_prompting(config.data, policy.tokenizer)
        engine, engine_line = build_engine(config.engine, policy)
        recorder.log(engine_line)
        sampling = (
            config.sampling if isinstance(config, SamplingRun) else config.evaluation.sampling
        )
        reward = build_run_reward(
            config.paid_reward if isinstance(config, GRPOConfig) else config.reward,
            grader,
            eos_token=policy.tokenizer.eos_token,
            max_tokens=sampling.max_tokens,
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
        try:
            yield Parts(
                paths=paths,
                policy=policy,
                prompting=prompting,
                engine=engine,
                engine_name=engine_line,
                grader=grader,
                reward=reward,
                recorder=recorder,
                checkpointer=checkpointer,
                stop=stop,
            )
            for line in before_and_after(paths.folder):
                recorder.log(line)
        finally:
            engine.close()


def validation_evaluator(
    config: TrainingRun, parts: Parts, held_out: Sequence[Problem]
) -> Evaluator | None:
    """The evaluation on the validation split and on the sets that are reported besides."""
    measuring = Measuring(
        config=config,
        policy=parts.policy,
        prompting=parts.prompting,
        engine=parts.engine,
        engine_name=parts.engine_name,
        grader=parts.grader,
        reward=parts.reward,
        recorder=parts.recorder,
        folder=parts.paths.folder,
    )
    return build_evaluator(measuring, held_out)
