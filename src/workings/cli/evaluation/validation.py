"""Evaluation inside training: the validation split chooses, other sets are only reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from workings.cli.build import (
    Policy,
    Prompting,
    build_sampling,
    dataset_name,
    evaluation_settings,
    limited_problems,
    problems_at,
)
from workings.cli.evaluation.engines import usual_part_rows
from workings.config.datasets import benchmark_names
from workings.config.kinds import TrainingRun
from workings.config.sections import DatasetConfig
from workings.config.sources import shipped_folder
from workings.data.benchmarks import benchmark_config
from workings.errors import ConfigError
from workings.evaluation.artefact import artefact, artefact_folder, write_artefact
from workings.evaluation.evaluate import evaluate
from workings.evaluation.reports import write_results
from workings.evaluation.result import EvaluationResult, with_entropies
from workings.evaluation.tag_metrics import describe_tag_metrics
from workings.grading.grader import Grader
from workings.models.weights import named_full_weights
from workings.rewards.reward import Reward
from workings.rollout.engine import Engine, SamplingParams
from workings.seeds import derive_seed
from workings.tracking.recorder import Recorder
from workings.training.microbatch_tokens import CPU_TOKENS
from workings.training.progress import Evaluator
from workings.training.response_means import response_means
from workings.types import Problem, Prompt

VALIDATION = "validation"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSet:
    """A data set that a run is evaluated on.

    `prefix` is put before its metrics' names: none for the validation split.
    """

    name: str
    prefix: str
    prompts: tuple[Prompt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """What the evaluations of a run share."""

    config: TrainingRun
    policy: Policy
    prompting: Prompting
    engine: Engine
    engine_name: str
    grader: Grader
    reward: Reward
    recorder: Recorder
    folder: Path

    @property
    def rests(self) -> bool:
        """The engine sleeps before and after an evaluation."""
        schedule = getattr(self.config, "schedule", "synchronous")
        return self.config.engine.rests and schedule == "synchronous"


def build_evaluator(measuring: Measuring, held_out: Sequence[Problem]) -> Evaluator | None:
    """`step -> metrics` of the validation split, after every set of the run was measured.

    The engine takes the current weights, samples, grades and stores. Only the validation split's
    metrics are returned, so that nothing else chooses the best checkpoint or ends a run. None where
    the run has no set at all. An engine that rests sleeps from here on, and may have dropped its
    weights whenever it sleeps.
    """
    config, recorder = measuring.config, measuring.recorder
    if measuring.rests:
        measuring.engine.sleep()
    sets = _sets(measuring, held_out)
    if not sets:
        if config.evaluation.every_steps or config.evaluation.stop_metric:
            recorder.warn(
                "evaluation is on, but there is no validation split; set data.validation or "
                "data.validation_fraction"
            )
        return None
    sampling = build_sampling(
        config.evaluation.sampling, measuring.prompting.template, logprobs=False
    )

    def evaluate_step(step: int) -> Mapping[str, float]:
        engine = measuring.engine
        engine.load_weights(step, named_full_weights(measuring.policy.model))
        if measuring.rests:
            engine.wake()
        results = {one.name: _measure(measuring, one, sampling, step) for one in sets}
        if measuring.rests:
            engine.sleep()
        if config.evaluation.token_entropy:
            # The engine rests by now: the pass has the memory that a training step has.
            for name, result in results.items():
                results[name] = _with_entropies(measuring, result, sampling, step)
        for one in sets:
            result = results[one.name]
            recorder.record(step, result.recorded(prefix=one.prefix), prefix="eval")
            told = describe_tag_metrics(result.metrics)
            if told is not None:
                recorder.log(f"{one.name} at step {step}: {told}")
        if config.evaluation.artefact:
            _write_artefact(measuring, results, step)
        return next((results[one.name].metrics for one in sets if not one.prefix), {})

    return evaluate_step


def _sets(measuring: Measuring, held_out: Sequence[Problem]) -> list[MeasuredSet]:
    config, log = measuring.config, measuring.recorder.log
    named: list[tuple[str, str, Sequence[Problem]]] = []
    if config.data.validation is not None:
        _warn_of_benchmark(measuring, config.data.validation)
        held_out = _problems(measuring, config.data.validation)
        named.append((dataset_name(config.data.validation), "", held_out))
    elif held_out:
        named.append((VALIDATION, "", held_out))
    for dataset in config.evaluation.datasets:
        if dataset.is_judged:
            raise ConfigError(
                f"evaluation.datasets: {dataset_name(dataset)} needs a judge",
                hint="workings eval and workings judge measure it after training",
            )
        name = dataset_name(dataset)
        named.append((name, name, _problems(measuring, dataset)))
    names = [name for name, _, _ in named]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two sets to evaluate on are called {name!r}", hint="give one another name"
            )
    sets = []
    for name, prefix, problems in named:
        some = limited_problems(problems, config.evaluation.limit, seed=config.seed)
        what = f"{name} prompts" if prefix else "validation prompts"
        prompts = measuring.prompting.prompts(some, log, what=what)
        sets.append(MeasuredSet(name=name, prefix=prefix, prompts=prompts))
    return sets


def _problems(measuring: Measuring, dataset: DatasetConfig) -> Sequence[Problem]:
    return problems_at(
        dataset,
        seed=measuring.config.seed,
        grader=measuring.grader,
        bad_gold=measuring.config.data.bad_gold,
        log=measuring.recorder.log,
    ).items


def _warn_of_benchmark(measuring: Measuring, dataset: DatasetConfig) -> None:
    """A model that was chosen on a benchmark scores too well on it."""
    name = benchmark_of(dataset)
    if name is not None and measuring.config.checkpoint.keep_best:
        measuring.recorder.warn(
            f"the best checkpoint is chosen on {name}, a benchmark: its accuracy there is no "
            f"result to report. Hold rows out with data.validation_fraction and put {name} into "
            "evaluation.datasets, or set checkpoint.keep_best=false"
        )


def benchmark_of(dataset: DatasetConfig) -> str | None:
    """The shipped benchmark that these rows are; None for other rows, and for made-up problems."""
    for name in benchmark_names([shipped_folder()]):
        known = benchmark_config(name)
        same = (known.path, known.subset, known.split) == (
            dataset.path,
            dataset.subset,
            dataset.split,
        )
        if same and not known.options and known.path not in ("arithmetic",):
            return name
    return None


def _measure(
    measuring: Measuring, one: MeasuredSet, sampling: SamplingParams, step: int
) -> EvaluationResult:
    """The result on one set, whose responses, rows and summary are stored."""
    config = measuring.config
    target = _folder(measuring, step)
    settings = _settings(measuring, sampling, step)
    result = evaluate(
        measuring.engine,
        one.prompts,
        measuring.reward,
        sampling,
        num_samples=config.evaluation.num_samples,
        seed=_seed(measuring),
        dataset=one.name,
        folder=target,
        settings=settings,
        part_rows=usual_part_rows(measuring.policy.device.type),
    )
    write_results(target, result, settings=settings)
    return result


def _with_entropies(
    measuring: Measuring, result: EvaluationResult, sampling: SamplingParams, step: int
) -> EvaluationResult:
    """The result with the policy's entropy over every response; its files are written again.

    At the sampling temperature, or at 1 where decoding was greedy, as in training.
    """
    config, policy = measuring.config, measuring.policy
    tokens = config.batch.microbatch_tokens
    means = response_means(
        policy.model,
        [(group.prompt.ids, rollout.ids) for group in result.groups for rollout in group.rollouts],
        "entropy",
        temperature=sampling.temperature or 1.0,
        max_tokens=CPU_TOKENS if tokens == "auto" else tokens,
        autocast=policy.autocast,
        pad_id=policy.pad_id,
    )
    values = iter(means.tolist())
    entropies = [[next(values) for _ in group.rollouts] for group in result.groups]
    found = with_entropies(result, entropies)
    write_results(_folder(measuring, step), found, settings=_settings(measuring, sampling, step))
    return found


def _folder(measuring: Measuring, step: int) -> Path:
    return measuring.folder / "eval" / f"step_{step:06d}"


def _seed(measuring: Measuring) -> int:
    return derive_seed(measuring.config.seed, "evaluation")


def _settings(measuring: Measuring, sampling: SamplingParams, step: int) -> dict[str, Any]:
    """What the numbers of an evaluation depend on."""
    config = measuring.config
    return {
        **evaluation_settings(
            model=config.model.name_or_path,
            template=config.data.template,
            engine=measuring.engine_name,
            sampling=sampling,
            num_samples=config.evaluation.num_samples,
            seed=_seed(measuring),
            reward=measuring.reward,
        ),
        "step": step,
    }


def _write_artefact(
    measuring: Measuring, results: Mapping[str, EvaluationResult], step: int
) -> None:
    config, now = measuring.config, datetime.now()
    content = artefact(
        {name: result.groups for name, result in results.items()},
        model=config.model.name_or_path,
        template=config.data.template,
        sampling=config.evaluation.sampling.model_dump(mode="json"),
        timestamp=now,
    )
    folder = artefact_folder(Path(config.output_dir).expanduser(), run=config.name, step=step)
    path = write_artefact(folder, content, run=config.name, step=step, timestamp=now)
    measuring.recorder.log(f"the whole evaluation at step {step} is in {path}")
