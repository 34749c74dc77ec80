"""`workings eval-luffy`: the flags of LUFFY's evaluation script, our sampling and grading."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from workings.cli.build import Prompting, build_grader, build_sampling, problems_at
from workings.cli.console import write_data, write_note
from workings.cli.evaluation.engines import rows_of_part
from workings.cli.evaluation.plan import evaluation_seed, refuse_other_settings
from workings.cli.evaluation.run import Loaded, Models, evaluation_prompting, progress_log
from workings.cli.sampling_text import describe_sampling
from workings.config.evaluation import EvalConfig
from workings.errors import ConfigError
from workings.evaluation.evaluate import sample_responses
from workings.evaluation.flat import (
    accuracy_by_source,
    accuracy_table,
    decoded_rows,
    flat_rows,
    graded_parts,
    write_rows,
)
from workings.evaluation.responses import ResponseStore, differing_values
from workings.grading.grader import Grader
from workings.rewards.reward import build_reward, grade_groups
from workings.tracking.alone import run_alone
from workings.types import Problem, RolloutGroup, Verdict

SETTINGS_OF_THE_RESPONSES = (
    *("model", "template", "system_prompt", "max_prompt_length", "sampling", "num_samples"),
    *("seed", "datasets"),
)
Marks = list[list[bool | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The script's own flags that are about neither model nor sampling.

    Attributes:
        output: the results file, .jsonl; the others lie beside it.
        remove_system: leave out a leading system message of the rows' prompts.
        second_decides: add_oat_evaluate: the second grader alone says what is right.
        either_decides: any_true: right is what one of the two graders calls so.
    """

    output: Path
    remove_system: bool
    second_decides: bool
    either_decides: bool


def run(config: EvalConfig, flags: Flags, *, fresh: bool = False) -> int:
    """Sample, decode, grade and sum up; the table goes to stdout and into the log.

    The same command after a stop goes on where it stood; `fresh` begins anew.
    """
    if flags.second_decides and flags.either_decides:
        raise ConfigError(
            "--add_oat_evaluate and --any_true contradict each other", hint="give one of them"
        )
    if flags.output.suffix != ".jsonl":
        raise ConfigError(f"--output_file {flags.output}; expected a name that ends in .jsonl")
    folder = flags.output.with_suffix(".responses")
    _refuse_other_files(flags.output, folder)
    with run_alone(folder, instead="give another --output_file"):
        if fresh and flags.output.is_file():
            write_note(f"--fresh will replace {flags.output}, and what was sampled for it")
        _evaluate(config, flags, folder, fresh=fresh)
    return 0


def _refuse_other_files(output: Path, folder: Path) -> None:
    """ConfigError where the results file is there, and this command has sampled nothing for it."""
    if output.is_file() and not ResponseStore(folder / output.stem).begun:
        raise ConfigError(
            f"{output} exists, and {folder.name} beside it has no responses that it was made of",
            hint="another --output_file keeps it; remove it if it is not needed",
        )


def _evaluate(config: EvalConfig, flags: Flags, folder: Path, *, fresh: bool) -> None:
    log = _Log(flags.output.with_suffix(".log"))
    with build_grader(config.grader) as grader:
        groups = _sampled(config, flags, folder, grader, log, fresh=fresh)
        write_rows(flags.output.with_suffix(".decoded.jsonl"), decoded_rows(groups))
        graded, correct = _graded(groups, flags, grader)
    write_rows(flags.output, flat_rows(graded, correct))
    table = accuracy_table(accuracy_by_source(groups, correct))
    write_data(table)
    for line in table.splitlines():
        log.keep(line)
    write_note(f"rows are in {flags.output}, what was sampled in {flags.output.stem}.decoded.jsonl")


def _sampled(
    config: EvalConfig, flags: Flags, folder: Path, grader: Grader, log: _Log, *, fresh: bool
) -> list[RolloutGroup]:
    """The responses, kept part by part in `folder`, which lies beside the results file."""
    settings = {
        name: value
        for name, value in config.model_dump(mode="json").items()
        if name in SETTINGS_OF_THE_RESPONSES
    } | {"remove_system": flags.remove_system}
    plan = None if fresh else ResponseStore(folder / flags.output.stem).plan()
    if plan is not None:
        refuse_other_settings(folder, differing_values(plan.settings, settings))
    problems = problems_at(
        config.datasets[0], seed=config.seed, grader=grader, bad_gold="drop", log=log
    ).items
    if flags.remove_system:
        problems = tuple(map(without_system, problems))
    with closing(Models()) as models:
        loaded: Loaded = models.load(config, log)
        prompting: Prompting = evaluation_prompting(config, loaded.policy)
        sampling = build_sampling(config.sampling, prompting.template, logprobs=False)
        log(describe_sampling(sampling))
        prompts = prompting.prompts(problems, log, what="prompts")
        num_samples = config.num_samples or 1
        return sample_responses(
            loaded.engines,
            prompts,
            sampling,
            num_samples=num_samples,
            seed=evaluation_seed(config),
            dataset=flags.output.stem,
            folder=folder,
            settings=settings,
            resume=not fresh,
            part_rows=rows_of_part(
                config,
                loaded.device_type,
                num_rows=num_samples * len(prompts),
                num_engines=len(loaded.engines),
            ),
            progress=progress_log(log, flags.output.stem),
        )


def without_system(problem: Problem) -> Problem:
    """The problem without a leading system message; as it is where it has none."""
    if problem.messages and problem.messages[0]["role"] == "system":
        return replace(problem, messages=problem.messages[1:])
    return problem


def _graded(
    groups: Sequence[RolloutGroup], flags: Flags, grader: Grader
) -> tuple[list[RolloutGroup], Marks]:
    """The groups with the deciding grades and their own texts, and what is right.

    The first grader proves equality by computer algebra, the second compares forms and values as
    strictly as the rewards of training do. Both read the box after the thought.
    """
    parts, finished = graded_parts(groups)
    first = grade_groups(
        parts, build_reward("question_only", grader=grader, fast=False, strict_compat=False)
    )
    second = grade_groups(parts, build_reward("question_only", grader=grader, fast=True))
    deciding = second if flags.second_decides else first
    correct: Marks = []
    for place, ended in enumerate(finished):
        marks: list[bool | None] = []
        for sample, whole in enumerate(ended):
            grades = [side[place].rollouts[sample].grade for side in (first, second)]
            says = [grade is not None and grade.correct for grade in grades]
            if grades[0] is not None and grades[0].verdict is Verdict.BAD_GOLD:
                marks.append(None)
                continue
            right = any(says) if flags.either_decides else says[flags.second_decides]
            marks.append(whole and right)
        correct.append(marks)
    with_texts = [
        replace(
            group,
            rollouts=tuple(
                replace(rollout, grade=judged.grade)
                for rollout, judged in zip(group.rollouts, one.rollouts, strict=True)
            ),
        )
        for group, one in zip(groups, deciding, strict=True)
    ]
    return with_texts, correct


class _Log:
    """Lines to stderr and, with the time, to a file that grows with every start."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path

    def __call__(self, text: str) -> None:
        write_note(text)
        self.keep(text)

    def keep(self, text: str) -> None:
        """The line in the file alone."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
