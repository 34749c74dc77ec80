"""The evaluation that a training run does on its validation rows, as a run of its own."""

from __future__ import annotations

from workings.config.evaluation import EvalConfig, HeldOutConfig
from workings.config.kinds import SamplingRun, TrainingRun
from workings.config.sections import DatasetConfig
from workings.config.sft import SFTConfig


def validation_dataset(run: TrainingRun) -> DatasetConfig | None:
    """The data set whose rows the run validates on, whole or a share; None where it has none."""
    if run.data.validation is not None:
        return run.data.validation
    return run.data.train if run.data.validation_fraction else None


def evaluation_of(run: TrainingRun, dataset: DatasetConfig) -> EvalConfig:
    """The settings that measure a model on `dataset` just as `run` measures its own.

    Template, rows and their order, sampling, reward, grader, engine and seed are the run's, and
    with its `validation_dataset` the problems are too. The model is the one that the run starts
    from, and the name that of the run with "-eval".
    """
    is_own = dataset == validation_dataset(run)
    return EvalConfig(
        name=f"{run.name}-eval",
        output_dir=run.output_dir,
        seed=run.seed,
        num_threads=run.num_threads,
        model=run.model.model_copy(update={"lora": None}),
        tracking=run.tracking,
        datasets=(dataset,),
        template=run.data.template,
        system_prompt=run.data.system_prompt,
        max_prompt_length=run.data.max_prompt_length,
        overlong=run.data.overlong,
        bad_gold=run.data.bad_gold,
        engine=run.engine,
        sampling=run.evaluation.sampling,
        num_samples=run.evaluation.num_samples,
        reward=run.reward,
        grader=run.grader,
        held_out=_held_out(run) if is_own else None,
    )


def _held_out(run: TrainingRun) -> HeldOutConfig:
    splits = run.data.validation is None
    return HeldOutConfig(
        fraction=run.data.validation_fraction if splits else 0.0,
        rows="demonstrations" if splits and isinstance(run, SFTConfig) else "problems",
        limit=run.evaluation.limit,
        prompt_length_percentile=run.data.prompt_length_percentile,
        reward_max_tokens=run.sampling.max_tokens if isinstance(run, SamplingRun) else None,
    )
