"""One evaluation, from its settings to files and numbers: the model loads on first need."""

from __future__ import annotations

import gc
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from workings.cli.build import (
    Log,
    Policy,
    Prompting,
    build_grader,
    build_policy,
    build_prompting,
    build_sampling,
    demonstrations_at,
    limited_problems,
    problems_at,
    set_threads,
    split_demonstrations,
    split_problems,
)
from workings.cli.evaluation.engines import build_engines, evaluation_devices, rows_of_part
from workings.cli.evaluation.plan import (
    OF_THE_REWARD,
    ON_RECORD,
    Action,
    evaluation_reward,
    evaluation_seed,
    num_samples_of,
    refuse_other_settings,
    stored_settings,
)
from workings.cli.sampling_text import describe_sampling
from workings.config.evaluation import EvalConfig
from workings.config.sections import DataConfig, DatasetConfig
from workings.evaluation.artefact import artefact, artefact_folder, write_artefact
from workings.evaluation.evaluate import (
    evaluate,
    refuse_no_prompt,
    regrade,
    sample_responses,
)
from workings.evaluation.judged import ARRAY_FILE, write_judged
from workings.evaluation.reports import SUMMARY_FILE, read_summary, write_results
from workings.evaluation.responses import differing_values
from workings.evaluation.sampling import Progress
from workings.grading.grader import Grader
from workings.rollout.engine import Engine
from workings.tracking.progress import format_duration
from workings.tracking.recorder import Recorder
from workings.types import Problem, RolloutGroup

STEP = re.compile(r"(?:step_|checkpoint-)(\d+)")
PROGRESS_SECONDS = 10.0


class EvaluationRun:
    """Evaluates the data sets of one configuration into `folder`, one after the other.

    The model is loaded for the first data set that is sampled, and for none that is graded again.
    """

    def __init__(
        self,
        config: EvalConfig,
        folder: Path,
        *,
        models: Models,
        grader: Grader,
        recorder: Recorder,
    ) -> None:
        self._config = config
        self._folder = folder
        self._grader = grader
        self._recorder = recorder
        self._models = models
        self._groups: dict[str, tuple[RolloutGroup, ...]] = {}

    def evaluate(
        self, dataset: DatasetConfig, name: str, *, settings: dict[str, Any], todo: Action
    ) -> dict[str, Any] | None:
        """The data set's summary; None where a judge decides and there is none."""
        target = self._folder / name
        if dataset.is_judged and todo == "grade":
            todo = "keep" if (target / ARRAY_FILE).is_file() else "go on"
            if todo == "keep":
                self._recorder.log(f"{name}: its replies are there already; kept")
                return None
        if todo == "keep":
            self._recorder.log(f"{name}: finished before with these settings; kept")
            return read_summary(target)
        stored = stored_settings(target) or {}
        if todo == "grade":
            self._recorder.log(f"{name}: stored responses graded again; no model is loaded")
            reward = evaluation_reward(
                self._config, self._grader, eos_token=stored.get("eos_token")
            )
            seed = evaluation_seed(self._config)
            result = regrade(self._folder, reward, dataset=name, seed=seed)
            kept = {key: stored[key] for key in ("backend", "eos_token") if key in stored}
            settings = {**settings, **kept}
        else:
            loaded = self._models.load(self._config, self._recorder.log)
            settings = {
                **settings,
                "backend": loaded.engine_line,
                "eos_token": loaded.policy.tokenizer.eos_token,
            }
            if todo == "go on":
                differing = differing_values(stored, settings, leave_out=ON_RECORD | OF_THE_REWARD)
                refuse_other_settings(target, differing)
            ask = self._ask(loaded, dataset, name, settings=settings, resume=todo == "go on")
            if dataset.is_judged:
                self._judged(ask, name)
                return None
            result = ask(
                evaluate,
                reward=evaluation_reward(
                    self._config, self._grader, eos_token=settings["eos_token"]
                ),
            )
        write_results(self._folder, result, settings=settings)
        self._groups[name] = result.groups
        return read_summary(target)

    def write_artefact(self, names: Sequence[str]) -> Path | None:
        """The whole evaluation in one file, where the settings ask for it and anything is new."""
        config = self._config
        if config.artefact == "none" or not self._groups:
            return None
        groups = {name: self._groups_of(name) for name in names if self._is_graded(name)}
        model = config.model.adapter or config.model.name_or_path
        step = step_of(Path(model))
        now = datetime.now()
        output = Path(config.output_dir).expanduser()
        folder = output
        if config.artefact == "eval_runs":
            folder = artefact_folder(output, run=config.name, step=step)
        content = artefact(
            groups,
            model=model,
            template=config.template,
            sampling=config.sampling.model_dump(mode="json"),
            timestamp=now,
        )
        return write_artefact(folder, content, run=config.name, step=step, timestamp=now)

    def _is_graded(self, name: str) -> bool:
        return (self._folder / name / SUMMARY_FILE).is_file()

    def _groups_of(self, name: str) -> Sequence[RolloutGroup]:
        """The graded groups; those of a data set that was kept are graded once more."""
        if name in self._groups:
            return self._groups[name]
        eos_token = (stored_settings(self._folder / name) or {}).get("eos_token")
        reward = evaluation_reward(self._config, self._grader, eos_token=eos_token)
        seed = evaluation_seed(self._config)
        return regrade(self._folder, reward, dataset=name, seed=seed).groups

    def _judged(self, ask: Callable[..., Any], name: str) -> None:
        groups: list[RolloutGroup] = ask(sample_responses)
        model = self._config.model.adapter or self._config.model.name_or_path
        paths = write_judged(self._folder / name, groups, generator=model, dataset=name)
        self._recorder.log(
            f"{name}: {len(groups)} replies for a judge, in {paths[0]} and {paths[1].name}; "
            "workings judge reads them"
        )

    def _ask(
        self,
        loaded: Loaded,
        dataset: DatasetConfig,
        name: str,
        *,
        settings: Mapping[str, Any],
        resume: bool,
    ) -> Callable[..., Any]:
        """A call of `evaluate` or `sample_responses` with everything but the reward."""
        config = self._config
        log = self._recorder.log
        prompting = evaluation_prompting(config, loaded.policy)
        sampling = build_sampling(config.sampling, prompting.template, logprobs=False)
        log(describe_sampling(sampling))
        problems = evaluation_problems(config, dataset, grader=self._grader, log=log)
        prompts = prompting.prompts(problems, log, what=f"{name} prompts")
        num_samples = num_samples_of(config, dataset)
        if config.num_samples is None and num_samples < dataset.num_samples:
            log(f"{name}: counted as {dataset.counted}; greedy decoding takes one sample")

        def call(function: Callable[..., Any], **more: Any) -> Any:
            return function(
                loaded.engines,
                prompts,
                sampling=sampling,
                num_samples=num_samples,
                seed=evaluation_seed(config),
                dataset=name,
                folder=self._folder,
                settings=settings,
                resume=resume,
                part_rows=rows_of_part(
                    config,
                    loaded.device_type,
                    num_rows=num_samples * len(prompts),
                    num_engines=len(loaded.engines),
                ),
                progress=progress_log(log, name),
                **more,
            )

        return call


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model and the engines that sample it, with what they are.

    `device_type` is where the engines sample: "cpu" or "cuda".
    """

    policy: Policy
    engines: tuple[Engine, ...]
    engine_line: str
    device_type: str


class Models:
    """The model that was loaded last, for evaluations that ask for the same one again."""

    def __init__(self) -> None:
        self._key = ""
        self._loaded: Loaded | None = None

    def load(self, config: EvalConfig, log: Log) -> Loaded:
        """The model and its engines; another one is released first."""
        key = json.dumps(
            [
                config.model.model_dump(mode="json"),
                config.engine.model_dump(mode="json"),
                [config.devices, config.num_threads, config.template],
            ]
        )
        if self._loaded is None or key != self._key:
            self.close()
            self._loaded, self._key = load_model_for(config, log), key
        return self._loaded

    def close(self) -> None:
        """Release the model and its engines."""
        if self._loaded is not None:
            for engine in self._loaded.engines:
                engine.close()
        self._loaded = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def load_model_for(config: EvalConfig, log: Log) -> Loaded:
    """The model of an evaluation, on its device, or on the CPU where processes sample it."""
    set_threads(config.num_threads)
    devices = evaluation_devices(config)
    model = config.model
    if devices and model.quantization not in ("4bit", "8bit"):
        model = model.model_copy(update={"device": "cpu"})
    policy = build_policy(model, seed=config.seed, trainable=False)
    engines, line = build_engines(config, policy, devices)
    for text in (*policy.report, line):
        log(text)
    device = devices[0] if devices else policy.device.type
    return Loaded(
        policy=policy,
        engines=tuple(engines),
        engine_line=line,
        device_type=device.partition(":")[0],
    )


def evaluation_prompting(config: EvalConfig, policy: Policy) -> Prompting:
    """How questions become prompts in this evaluation."""
    held_out = config.held_out
    return build_prompting(
        config.template,
        policy.tokenizer,
        system_prompt=config.system_prompt,
        max_length=config.max_prompt_length,
        percentile=held_out.prompt_length_percentile if held_out else None,
        overlong=config.overlong,
    )


def evaluation_problems(
    config: EvalConfig, dataset: DatasetConfig, *, grader: Grader, log: Log
) -> list[Problem]:
    """The problems of a data set: all, or those that a training run would validate on."""
    held_out = config.held_out
    if held_out is not None and held_out.rows == "demonstrations":
        data = DataConfig(train=dataset, validation_fraction=held_out.fraction)
        rows = demonstrations_at(dataset, seed=config.seed, log=log).items
        _, problems = split_demonstrations(data, rows, seed=config.seed)
    else:
        loaded = problems_at(
            dataset, seed=config.seed, grader=grader, bad_gold=config.bad_gold, log=log
        )
        problems = list(loaded.items)
        if held_out is not None and held_out.fraction:
            data = DataConfig(train=dataset, validation_fraction=held_out.fraction)
            _, problems = split_problems(data, problems, seed=config.seed)
    limit = held_out.limit if held_out is not None else None
    return list(limited_problems(problems, limit, seed=config.seed))


def try_out(config: EvalConfig, names: Sequence[str], *, models: Models, log: Log) -> None:
    """Load the model and read every data set as the evaluation will; their errors are raised here.

    Nothing is written. The model stays in `models`, so that it is not loaded twice.
    """
    loaded = models.load(config, log)
    prompting = evaluation_prompting(config, loaded.policy)
    build_sampling(config.sampling, prompting.template, logprobs=False)
    with build_grader(config.grader) as grader:
        evaluation_reward(config, grader, eos_token=loaded.policy.tokenizer.eos_token)
        for dataset, name in zip(config.datasets, names, strict=True):
            problems = evaluation_problems(config, dataset, grader=grader, log=_unsaid)
            prompts = prompting.prompts(problems, _unsaid, what=f"{name} prompts")
            refuse_no_prompt(prompts, name)


def _unsaid(text: str) -> None:
    """Nothing: the evaluation itself will say it."""


def progress_log(log: Log, name: str) -> Progress:
    """A line on how far sampling is, at most one in `PROGRESS_SECONDS`, with the time left."""
    begun = time.monotonic()
    last, first = begun, -1

    def report(answered: int, total: int) -> None:
        nonlocal last, first
        now = time.monotonic()
        if first < 0:  # how many an earlier start had, and this part
            first = answered
        if now - last < PROGRESS_SECONDS or answered == total:
            return
        last = now
        text = f"{name}: {answered:,} of {total:,} problems"
        if answered > first:
            left = (now - begun) * (total - answered) / (answered - first)
            text += f", about {format_duration(left)} left"
        log(text)

    return report


def step_of(model: Path) -> int:
    """The training step of a model's folder, 0 where its name does not say.

    >>> step_of(Path("runs/mine/checkpoints/step_000100")), step_of(Path("qwen2.5"))
    (100, 0)
    """
    match = STEP.fullmatch(model.name)
    return int(match[1]) if match else 0
