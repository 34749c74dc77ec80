"""A pipeline measured as it goes: base, SFT, GRPO and a control on the same held-out problems."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path

import torch

from workings.cli.build import (
    build_grader,
    build_policy,
    build_prompting,
    build_run_reward,
    build_sampling,
    dataset_name,
    evaluation_settings,
    problems_at,
)
from workings.cli.console import write_note
from workings.cli.engines import build_engine
from workings.cli.folders import CONFIG, run_folder
from workings.cli.grpo_runs import run_grpo
from workings.cli.runs import run_sft
from workings.config.grpo import GRPOConfig
from workings.config.pipeline import PipelineConfig
from workings.config.sections import DatasetConfig, ModelConfig
from workings.config.sft import SFTConfig
from workings.errors import AlreadyFinished, CheckpointError, ConfigError
from workings.evaluation.compare import compare_folders
from workings.evaluation.evaluate import evaluate
from workings.evaluation.metrics import Estimate, PairedDifference
from workings.evaluation.reports import SUMMARY_FILE, read_summary, write_results
from workings.evaluation.tables import Stage
from workings.models.checkpoint import latest_checkpoint
from workings.seeds import derive_seed
from workings.training.checkpointer import STATE, RunPaths
from workings.training.state import TrainerState

BASE, SFT, GRPO, CONTROL = "base", "SFT", "GRPO", "SFT for as long as GRPO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A finished phase: where its model is, and the training seconds it took."""

    final: Path
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult:
    """What a pipeline made.

    Attributes:
        final: folder of the last model.
        stages: one row per measured model, in order; empty without a test set.
        gain: GRPO against the SFT model it started from, paired by problem; None where either was
            not measured.
        over_control: GRPO against the control; None without one.
    """

    final: Path
    stages: tuple[Stage, ...]
    gain: PairedDifference | None = None
    over_control: PairedDifference | None = None


def run_pipeline(config: PipelineConfig, *, resume: str | None = None) -> PipelineResult:
    """Run the phases that are not skipped, and measure each model where there is a test set."""
    stages: list[Stage] = []

    def measure(name: str, model: ModelConfig, seconds: float | None = None) -> None:
        if config.test is not None:
            stages.append(measure_stage(config.grpo, config.test, name, model, seconds=seconds))

    sft = _saved_sft(config)
    if not config.skip_sft:
        measure(BASE, config.sft.model)
        sft = _run_phase(config.sft, resume)
    measure(
        SFT, started_from(config.sft.model, sft.final), None if config.skip_sft else sft.seconds
    )
    if config.skip_grpo:
        return PipelineResult(final=sft.final, stages=tuple(stages))
    start = started_from(config.grpo.model, sft.final)
    grpo = _run_phase(config.grpo.model_copy(update={"model": start}), resume)
    measure(GRPO, started_from(config.grpo.model, grpo.final), grpo.seconds)
    if config.control:
        control = _run_phase(control_run(config, sft, seconds=grpo.seconds), resume)
        measure(CONTROL, started_from(config.sft.model, control.final), control.seconds)
    if config.test is None:
        return PipelineResult(final=grpo.final, stages=())
    return PipelineResult(
        final=grpo.final,
        stages=tuple(stages),
        gain=_difference(config, SFT, GRPO),
        over_control=_difference(config, CONTROL, GRPO) if config.control else None,
    )


def measure_stage(
    config: GRPOConfig,
    test: DatasetConfig,
    name: str,
    model: ModelConfig,
    *,
    seconds: float | None = None,
) -> Stage:
    """The stage's row; what was measured before the run was interrupted is read, not repeated.

    Template, sampling, reward and grader are those of the GRPO run's own evaluation.
    """
    folder = stage_folder(config, name)
    dataset = dataset_name(test)
    if not (folder / dataset / SUMMARY_FILE).is_file():
        write_note(f"measuring {name} on the held-out problems of {dataset}")
        _measure(config, test, model, folder)
    summary = read_summary(folder / dataset)
    return Stage(
        name=name,
        accuracy=Estimate(**next(iter(summary["estimates"].values()))),
        format_rate=summary["metrics"]["format_accuracy"],
        mean_length=summary["metrics"]["avg_response_length/total"],
        seconds=seconds,
    )


def stage_folder(config: GRPOConfig, name: str) -> Path:
    """Where a stage's evaluation is kept: beside the phases."""
    return run_folder(config).parent / "test" / name.replace(" ", "_")


def started_from(model: ModelConfig, final: Path) -> ModelConfig:
    """The model settings with what a phase saved: its adapter on the base, or its full model."""
    if (final / "adapter_config.json").is_file():
        return model.model_copy(update={"adapter": str(final)})
    return model.model_copy(update={"name_or_path": str(final)})


def control_run(config: PipelineConfig, sft: Phase, *, seconds: float) -> SFTConfig:
    """SFT continued from its result, on other rows of the same data, for so many seconds."""
    run = config.sft
    return run.model_copy(
        update={
            "name": str(Path(run.name).with_name("control")),
            "model": started_from(run.model, sft.final),
            "seed": derive_seed(run.seed, "control") % 2**31,
            "evaluation": run.evaluation.model_copy(
                update={
                    "every_steps": 0,
                    "at_start": False,
                    "at_end": False,
                    "stop_metric": None,
                    "stop_at": None,
                }
            ),
            "max_steps": 10**9,
            "max_seconds": seconds,
        }
    )


def _measure(config: GRPOConfig, test: DatasetConfig, model: ModelConfig, folder: Path) -> None:
    def ignore(text: str) -> None:
        """What the rows look like was said when training began."""

    with build_grader(config.grader) as grader:
        policy = build_policy(model, seed=config.seed, trainable=False)
        prompting = build_prompting(
            config.data.template,
            policy.tokenizer,
            system_prompt=config.data.system_prompt,
            max_length=config.data.max_prompt_length,
            overlong="error",
        )
        # The problems are the same whatever the run's seed, so that seeds can be pooled by problem.
        problems = problems_at(
            test, seed=0, grader=grader, bad_gold=config.data.bad_gold, log=ignore
        ).items
        sampling = build_sampling(config.evaluation.sampling, prompting.template, logprobs=False)
        reward = build_run_reward(
            config.reward,
            grader,
            eos_token=policy.tokenizer.eos_token,
            max_tokens=sampling.max_tokens,
        )
        engine, engine_line = build_engine(config.engine, policy)
        seed = derive_seed(config.seed, "evaluation")
        result = evaluate(
            engine,
            prompting.prompts(problems, ignore, what="test prompts"),
            reward,
            sampling,
            num_samples=config.evaluation.num_samples,
            seed=seed,
            dataset=dataset_name(test),
            folder=folder,
        )
        settings = evaluation_settings(
            model=model.adapter or model.name_or_path,
            template=config.data.template,
            engine=engine_line,
            sampling=sampling,
            num_samples=config.evaluation.num_samples,
            seed=seed,
            reward=reward,
        )
        write_results(folder, result, settings=settings)
        engine.close()
    _release()


def _run_phase(config: SFTConfig | GRPOConfig, resume: str | None) -> Phase:
    started = _started(config, resume)
    try:
        if isinstance(config, SFTConfig):
            result, final = run_sft(config, resume=started)
        else:
            result, final = run_grpo(config, resume=started)
        phase = Phase(final=final, seconds=result.state.elapsed_seconds)
    except AlreadyFinished:
        phase = _finished(config)
    _release()
    return phase


def _started(config: SFTConfig | GRPOConfig, resume: str | None) -> str | None:
    """Resume a phase only where it has been started."""
    return resume if (run_folder(config) / CONFIG).is_file() else None


def _finished(config: SFTConfig | GRPOConfig) -> Phase:
    paths = RunPaths(folder=run_folder(config), layout=config.layout)
    latest = latest_checkpoint(paths.checkpoints)
    if latest.path is None:
        raise CheckpointError(f"{paths.folder} has a final model but no whole checkpoint")
    state = TrainerState.read(latest.path / STATE, kind=config.kind)
    return Phase(final=paths.final, seconds=state.elapsed_seconds)


def _saved_sft(config: PipelineConfig) -> Phase:
    """What an earlier SFT saved; ConfigError where SFT is skipped and there is nothing."""
    final = RunPaths(folder=run_folder(config.sft), layout=config.sft.layout).final
    if config.skip_sft and not final.is_dir():
        raise ConfigError(
            f"skip_sft is set, but SFT has saved nothing in {final}",
            hint="run it once without skip_sft, or use workings grpo with model.name_or_path",
        )
    return Phase(final=final, seconds=0.0)


def _difference(config: PipelineConfig, first: str, second: str) -> PairedDifference:
    assert config.test is not None
    folders = [
        stage_folder(config.grpo, name) / dataset_name(config.test) for name in (first, second)
    ]
    return compare_folders(folders[:1], folders[1:], seed=config.grpo.seed)


def _release() -> None:
    """Give back what a phase held before the next one loads its model."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
