"""The first rows of a run's data, both as problems and as demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workings.cli.build import build_grader, demonstrations_at, describe_loaded, problems_at
from workings.cli.doctor.findings import Finding, ok, warn
from workings.cli.preference_runs import preferences_at, split_pairs
from workings.config.dpo import DPOConfig
from workings.config.evaluation import EvalConfig
from workings.config.kinds import SamplingRun, TrainingRun
from workings.config.sample import SampleConfig
from workings.config.sections import DatasetConfig
from workings.config.sft import SFTConfig
from workings.data.loaded import Loaded
from workings.types import Demonstration, PreferencePair, Problem

Phase = TrainingRun | DPOConfig | EvalConfig | SampleConfig
MOST_ROWS = 2000
"""Rows beyond these are read and their gold answers checked, but they are not encoded."""
PROBE = Problem(id="probe", question="What is 2+2?", answer="4")
PROBE_RESPONSE = "2+2=4 </think> <answer>4</answer>"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRows:
    """Rows and what was found on reading them.

    Attributes:
        demonstrations: of an SFT run its own, of a DPO run both responses of each pair; of any
            other its problems with a made-up response.
        problems: rows with a gold answer; empty where the rows have none.
    """

    demonstrations: tuple[Demonstration, ...]
    problems: tuple[Problem, ...]
    findings: tuple[Finding, ...]


def first_rows(phase: Phase) -> FirstRows:
    """The rows of the run's data sets; those of a question-and-answer command are made up."""
    if isinstance(phase, SampleConfig):
        rows = (as_demonstration(PROBE),)
        return FirstRows(demonstrations=rows, problems=(PROBE,), findings=())
    if isinstance(phase, SFTConfig):
        train = demonstrations_at(phase.data.train, seed=phase.seed, log=_nothing)
        demonstrations = train.items[:MOST_ROWS]
        problems = tuple(as_problem(row) for row in demonstrations if row.answer is not None)
        found = [_data(train), *_validation(phase)]
        return FirstRows(demonstrations=demonstrations, problems=problems, findings=tuple(found))
    if isinstance(phase, DPOConfig):
        return _first_pairs(phase)
    loaded = [_problems(phase, dataset) for dataset in _datasets(phase)]
    problems = tuple(problem for one in loaded for problem in one.items)[:MOST_ROWS]
    found = [_data(one) for one in loaded]
    if isinstance(phase, SamplingRun):
        found += _validation(phase)
    return FirstRows(
        demonstrations=tuple(map(as_demonstration, problems)),
        problems=problems,
        findings=tuple(found),
    )


def _first_pairs(phase: DPOConfig) -> FirstRows:
    train = preferences_at(phase.data.train, seed=phase.seed, log=_nothing)
    found = [_data(train)]
    if phase.data.validation is not None:
        loaded = preferences_at(phase.data.validation, seed=phase.seed, log=_nothing)
        found.append(ok("validation", describe_loaded(loaded).removeprefix("data: ")))
    elif held_out := split_pairs(phase, train.items)[1]:
        found.append(ok("validation", f"{len(held_out)} of the pairs, held out"))
    elif phase.evaluation.every_steps:
        found.append(_no_validation(phase))
    rows = [
        Demonstration(id=pair.id, question=pair.question, response=response, messages=pair.messages)
        for pair in train.items[: MOST_ROWS // 2]
        for response in (pair.chosen, pair.rejected)
    ]
    return FirstRows(demonstrations=tuple(rows), problems=(), findings=tuple(found))


def as_problem(row: Demonstration) -> Problem:
    """The row as rollout and evaluation ask it."""
    return Problem(id=row.id, question=row.question, answer=row.answer or "", messages=row.messages)


def as_demonstration(problem: Problem) -> Demonstration:
    """The problem as SFT would train it, with a made-up response."""
    return Demonstration(
        id=problem.id,
        question=problem.question,
        response=PROBE_RESPONSE,
        answer=problem.answer,
        messages=problem.messages,
    )


def _datasets(phase: SamplingRun | EvalConfig) -> Sequence[DatasetConfig]:
    return phase.datasets if isinstance(phase, EvalConfig) else (phase.data.train,)


def _problems(phase: TrainingRun | EvalConfig, dataset: DatasetConfig) -> Loaded[Problem]:
    bad_gold = phase.bad_gold if isinstance(phase, EvalConfig) else phase.data.bad_gold
    with build_grader(phase.grader) as grader:
        return problems_at(dataset, seed=phase.seed, grader=grader, bad_gold=bad_gold, log=_nothing)


def _validation(phase: TrainingRun) -> list[Finding]:
    if phase.data.validation is not None:
        loaded = _problems(phase, phase.data.validation)
        return [ok("validation", describe_loaded(loaded).removeprefix("data: "))]
    if phase.data.validation_fraction:
        return [ok("validation", f"{phase.data.validation_fraction:.0%} of the rows, held out")]
    if phase.evaluation.every_steps:
        return [_no_validation(phase)]
    return []


def _no_validation(phase: TrainingRun | DPOConfig) -> Finding:
    return warn(
        "validation",
        f"evaluation.every_steps={phase.evaluation.every_steps}, but there are no "
        "validation rows, so nothing is evaluated and no best model is kept",
        "set data.validation or data.validation_fraction",
    )


def _data(loaded: Loaded[Problem] | Loaded[Demonstration] | Loaded[PreferencePair]) -> Finding:
    text = describe_loaded(loaded).removeprefix("data: ")
    if loaded.num_dropped:
        return warn("data", text, "see `workings inspect data`, and columns or bad_gold")
    return ok("data", text)


def _nothing(text: str) -> None:
    """What is said while loading is in the findings."""
