"""`workings eval`: one model on one or more data sets, with intervals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workings.cli.build import (
    Policy,
    Prompting,
    build_grader,
    build_policy,
    build_prompting,
    build_recorder,
    build_run_reward,
    build_sampling,
    dataset_name,
    demonstrations_at,
    evaluation_settings,
    limited_problems,
    problems_at,
    set_threads,
    split_demonstrations,
    split_problems,
)
from workings.cli.console import write_data, write_note
from workings.cli.engines import build_engine
from workings.cli.evaluation_report import evaluation_report
from workings.cli.folders import open_folder, run_folder
from workings.cli.sampling_text import describe_sampling
from workings.config.dump import resolved
from workings.config.evaluation import EvalConfig
from workings.config.sections import DataConfig, DatasetConfig
from workings.errors import ConfigError
from workings.evaluation.evaluate import RESPONSES_FILE, evaluate, regrade
from workings.evaluation.reports import SUMMARY_FILE, read_summary, write_results
from workings.evaluation.summary_tables import write_metrics_summary
from workings.grading.grader import Grader
from workings.models.weights import named_full_weights
from workings.rewards.reward import Reward
from workings.rollout.engine import Engine, SamplingParams
from workings.seeds import derive_seed
from workings.tracking.environment import package_versions
from workings.tracking.recorder import Recorder
from workings.types import Problem, Prompt

VERSIONED = ("workings", "torch", "transformers", "tokenizers", "math-verify", "sympy")
VALIDATION = "validation"
"""What the held-out part of training rows is called in metrics and folders."""
OF_THE_REWARD = frozenset({"grader", "reward"})
Settings = Mapping[str, object]


def run(config: EvalConfig, *, resume: str | None) -> int:
    """Evaluate on every data set; the table goes to stdout, the files into the run's folder.

    With `resume` a data set that was finished with the same settings is not sampled again; one
    whose stored responses differ in the reward alone is graded again.
    """
    names = dataset_names(config)
    folder = _open(config, names, resume)
    set_threads(config.num_threads)
    recorder = build_recorder(
        config.tracking, folder, name=config.kind, total_steps=0, settings=resolved(config)
    )
    with recorder, build_grader(config.grader) as grader:
        recorder.truncate_after(-1)
        parts = _parts(config, folder, grader, recorder)
        summaries = []
        with closing(parts.engine):
            for dataset, name in zip(config.datasets, names, strict=True):
                summaries.append(_evaluate_dataset(parts, dataset, name))
                metrics = summaries[-1]["metrics"]
                row = {f"{name}/{metric}": value for metric, value in metrics.items()}
                recorder.record(0, row, prefix="eval")
    write_data(evaluation_report(summaries))
    table, _ = write_metrics_summary(folder)
    write_note(f"every number and response is in {folder}, the table in {table.name}")
    return 0


def dataset_names(config: EvalConfig) -> list[str]:
    """What each data set is called in metrics and folders; ConfigError where two share a name."""
    names = [dataset_name(dataset) for dataset in config.datasets]
    if config.held_out is not None and config.held_out.fraction:
        names = [VALIDATION if len(names) == 1 else f"{name}_{VALIDATION}" for name in names]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ConfigError(
            f"two data sets are called {twice[0]!r}, and would write into one folder",
            hint="give one of them another name, e.g. datasets.1.name=...",
        )
    return names


def _open(config: EvalConfig, names: list[str], resume: str | None) -> Path:
    """The evaluation's folder; one with results is only gone on with when asked to."""
    if resume not in (None, "latest"):
        raise ConfigError(
            f"--resume {resume}: an evaluation has no checkpoints",
            hint="--resume alone goes on with the evaluation that name and output_dir say",
        )
    folder = run_folder(config)
    finished = [name for name in names if (folder / name / SUMMARY_FILE).is_file()]
    if finished and resume is None:
        raise ConfigError(
            f"the evaluation {folder} exists, with results for {', '.join(finished)}",
            hint="--resume keeps what was finished with the same settings and does the rest; "
            "name=... starts another beside it",
        )
    paths, notes = open_folder(config, resume="latest")
    for note in notes if resume else ():
        write_note(note)
    return paths.folder


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    config: EvalConfig
    folder: Path
    policy: Policy
    prompting: Prompting
    engine: Engine
    engine_line: str
    sampling: SamplingParams
    grader: Grader
    reward: Reward
    recorder: Recorder


def _parts(config: EvalConfig, folder: Path, grader: Grader, recorder: Recorder) -> _Parts:
    policy = build_policy(config.model, seed=config.seed, trainable=False)
    held_out = config.held_out
    prompting = build_prompting(
        config.template,
        policy.tokenizer,
        system_prompt=config.system_prompt,
        max_length=config.max_prompt_length,
        percentile=held_out.prompt_length_percentile if held_out else None,
        overlong=config.overlong,
    )
    engine, engine_line = build_engine(config.engine, policy)
    sampling = build_sampling(config.sampling, prompting.template, logprobs=False)
    for line in (*policy.report, engine_line, describe_sampling(sampling)):
        recorder.log(line)
    # As training does before each of its evaluations.
    engine.load_weights(0, named_full_weights(policy.model))
    return _Parts(
        config=config,
        folder=folder,
        policy=policy,
        prompting=prompting,
        engine=engine,
        engine_line=engine_line,
        sampling=sampling,
        grader=grader,
        reward=build_run_reward(
            config.reward,
            grader,
            eos_token=policy.tokenizer.eos_token,
            max_tokens=_reward_max_tokens(config),
        ),
        recorder=recorder,
    )


def _reward_max_tokens(config: EvalConfig) -> int:
    """What length terms count from: the limit of the run that is measured again, or our own."""
    held_out = config.held_out
    if held_out is not None and held_out.reward_max_tokens is not None:
        return held_out.reward_max_tokens
    return config.sampling.max_tokens


def _evaluate_dataset(parts: _Parts, dataset: DatasetConfig, name: str) -> dict[str, Any]:
    """The data set's summary, new or from an earlier start of the same evaluation."""
    config, folder = parts.config, parts.folder
    seed = derive_seed(config.seed, "evaluation")
    settings = _settings(parts, dataset, seed)
    stored = _stored_settings(folder / name)
    if stored is not None and _same(stored, settings):
        parts.recorder.log(f"{name}: finished before with these settings; kept")
        return read_summary(folder / name)
    if (
        stored is not None
        and _same(stored, settings, but=OF_THE_REWARD)
        and (folder / name / RESPONSES_FILE).is_file()
    ):
        parts.recorder.log(f"{name}: only the reward has changed; stored responses graded again")
        result = regrade(folder, parts.reward, dataset=name, seed=seed)
    else:
        prompts = _prompts(parts, dataset, name)
        result = evaluate(
            parts.engine,
            prompts,
            parts.reward,
            parts.sampling,
            num_samples=config.num_samples,
            seed=seed,
            dataset=name,
            folder=folder,
        )
    write_results(folder, result, settings=settings)
    return read_summary(folder / name)


def _prompts(parts: _Parts, dataset: DatasetConfig, name: str) -> tuple[Prompt, ...]:
    problems = evaluation_problems(parts.config, dataset, grader=parts.grader, log=parts.recorder)
    return parts.prompting.prompts(problems, parts.recorder.log, what=f"{name} prompts")


def evaluation_problems(
    config: EvalConfig, dataset: DatasetConfig, *, grader: Grader, log: Recorder
) -> list[Problem]:
    """The problems of a data set: all, or those that a training run would validate on."""
    held_out = config.held_out
    if held_out is not None and held_out.rows == "demonstrations":
        data = DataConfig(train=dataset, validation_fraction=held_out.fraction)
        rows = demonstrations_at(dataset, seed=config.seed, log=log.log).items
        _, problems = split_demonstrations(data, rows, seed=config.seed)
    else:
        loaded = problems_at(
            dataset, seed=config.seed, grader=grader, bad_gold=config.bad_gold, log=log.log
        )
        problems = list(loaded.items)
        if held_out is not None and held_out.fraction:
            data = DataConfig(train=dataset, validation_fraction=held_out.fraction)
            _, problems = split_problems(data, problems, seed=config.seed)
    limit = held_out.limit if held_out is not None else None
    return list(limited_problems(problems, limit, seed=config.seed))


def _settings(parts: _Parts, dataset: DatasetConfig, seed: int) -> dict[str, Any]:
    """What the numbers depend on, in plain JSON."""
    config, model = parts.config, parts.config.model
    settings = {
        **evaluation_settings(
            model=model.name_or_path if model.adapter is None else model.adapter,
            template=config.template,
            engine=parts.engine_line,
            sampling=parts.sampling,
            num_samples=config.num_samples,
            seed=seed,
            reward=parts.reward,
        ),
        "run_seed": config.seed,
        "reward": config.reward.model_dump(mode="json"),
        "model_settings": model.model_dump(mode="json"),
        "engine": config.engine.model_dump(mode="json"),
        "data": dataset.model_dump(mode="json"),
        "held_out": None if config.held_out is None else config.held_out.model_dump(mode="json"),
        "system_prompt": config.system_prompt,
        "max_prompt_length": config.max_prompt_length,
        "overlong": config.overlong,
        "versions": package_versions(VERSIONED),
    }
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


def _stored_settings(folder: Path) -> Settings | None:
    if not (folder / SUMMARY_FILE).is_file():
        return None
    settings: Settings | None = read_summary(folder).get("settings")
    return settings


def _same(first: Settings, second: Settings, *, but: frozenset[str] = frozenset()) -> bool:
    """Whether two evaluations measure the same; versions of packages are on record only."""
    names = (first.keys() | second.keys()) - but - {"versions"}
    return all(first.get(name) == second.get(name) for name in names)
