"""`workings inspect rollouts`: completions with tags and rewards, and why rewards are flat."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from workings.cli.build import (
    build_grader,
    build_policy,
    build_run_reward,
    build_sampling,
    problems_at,
    set_threads,
    split_problems,
    training_prompting,
)
from workings.cli.console import write_data, write_note
from workings.cli.engines import build_engine
from workings.cli.folders import CONFIG
from workings.cli.rollout_text import describe_batch, describe_group, marks_of
from workings.cli.sampling_text import describe_sampling
from workings.config.grpo import GRPOConfig
from workings.config.sources import read_yaml
from workings.config.trees import look_up
from workings.errors import ConfigError, DataError
from workings.evaluation.stored_evaluations import STEP_FOLDER
from workings.rewards.reward import grade_groups
from workings.rollout.collect import collect_groups
from workings.seeds import derive_seed
from workings.tracking.rollouts import read_groups, read_rows, rollouts_path
from workings.types import RolloutGroup


def run(run: Path | None, *, config: GRPOConfig | None, step: int | None, limit: int) -> int:
    """Print a summary of the batch and its first `limit` groups.

    From a run's folder the rollouts that it saved; from a configuration fresh samples, drawn with
    the settings of a GRPO step.
    """
    if run is not None:
        _show_saved(run.expanduser(), step=step, limit=limit)
    elif config is not None:
        if step is not None:
            raise ConfigError("--step is for the saved rollouts of a run's folder")
        _show_fresh(config, limit=limit)
    return 0


# ------------------------------------------------------------------------------- saved rollouts


def _show_saved(folder: Path, *, step: int | None, limit: int) -> None:
    file = saved_file(folder, step)
    groups = read_groups(file)
    reward = str(look_up(_settings(folder), "reward.name", "r1_zero"))
    write_data(f"{folder}, step {step_of(file)}")
    write_data(describe_batch(groups, reward=reward))
    _show_groups(groups, _advantages(file), reward=reward, limit=limit)


def saved_file(folder: Path, step: int | None) -> Path:
    """The stored rollouts of a step, the last one by default; DataError where there are none."""
    found = (folder / "rollouts").glob("step_*.parquet")
    files = sorted((path for path in found if STEP_FOLDER.fullmatch(path.stem)), key=step_of)
    if not files:
        raise DataError(
            f"{folder} holds no rollouts",
            hint="a GRPO run stores them with tracking.save_rollouts_every=1; with -c and "
            "settings this command samples fresh ones",
        )
    if step is None:
        return files[-1]
    file = rollouts_path(folder / "rollouts", step)
    if file not in files:
        numbers = [step_of(path) for path in files]
        raise DataError(
            f"{folder} holds no rollouts of step {step}",
            hint=f"it has {len(numbers)} steps between {numbers[0]} and {numbers[-1]}",
        )
    return file


def step_of(file: Path) -> int:
    """The step of a file of rollouts.

    >>> step_of(Path("rollouts/step_000012.parquet"))
    12
    """
    return int(file.stem.removeprefix("step_"))


def _settings(folder: Path) -> dict[str, Any]:
    return read_yaml(folder / CONFIG) if (folder / CONFIG).is_file() else {}


def _advantages(file: Path) -> list[list[float | None]]:
    """[groups][samples]; None where none was stored."""
    table: dict[int, list[float | None]] = {}
    for row in read_rows(file, columns=["group", "advantage"]):
        table.setdefault(row["group"], []).append(row["advantage"])
    return list(table.values())


def _show_groups(
    groups: Sequence[RolloutGroup],
    advantages: Sequence[Sequence[float | None]],
    *,
    reward: str,
    limit: int,
) -> None:
    for number, group in enumerate(groups[:limit], start=1):
        row = advantages[number - 1] if advantages else ()
        write_data(describe_group(group, number=number, reward=reward, advantages=row))


# ------------------------------------------------------------------------------- fresh samples


def _show_fresh(config: GRPOConfig, *, limit: int) -> None:
    set_threads(config.num_threads)
    policy = build_policy(config.model, seed=config.seed, trainable=False)
    prompting = training_prompting(config.data, policy.tokenizer)
    engine, engine_line = build_engine(config.engine, policy)
    sampling = build_sampling(config.sampling, prompting.template)
    for line in (*policy.report, engine_line, describe_sampling(sampling)):
        write_note(line)
    with build_grader(config.grader) as grader, closing(engine):
        problems = problems_at(
            config.data.train,
            seed=config.seed,
            grader=grader,
            bad_gold=config.data.bad_gold,
            log=write_note,
        ).items
        train, _ = split_problems(config.data, problems, seed=config.seed)
        prompts = prompting.prompts(train, write_note, what="training prompts")[:limit]
        groups = collect_groups(
            engine,
            prompts,
            sampling,
            num_samples=config.num_generations,
            seed=derive_seed(config.seed, "rollout", 0),
        )
        reward = build_run_reward(
            config.reward,
            grader,
            eos_token=policy.tokenizer.eos_token,
            max_tokens=sampling.max_tokens,
        )
        groups = grade_groups(groups, reward)
    tokens = describe_tokenisation(groups, policy.tokenizer, marks_of(config.reward.name))
    write_data(describe_batch(groups, reward=config.reward.name, more=[tokens]))
    _show_groups(groups, (), reward=config.reward.name, limit=limit)


def describe_tokenisation(
    groups: Sequence[RolloutGroup], tokenizer: Any, marks: Sequence[str]
) -> str:
    """How many tokens each tag takes, and how often sampled ids differ from the usual encoding.

    A difference does no harm, because the sampled ids are what is trained; a tag of many tokens
    takes longer to learn than one of few.
    """
    sizes = ", ".join(
        f"{mark} {len(tokenizer.encode(mark, add_special_tokens=False))}" for mark in marks
    )
    every = [rollout for group in groups for rollout in group.rollouts]
    differing = 0
    for rollout in every:
        ids = list(rollout.ids)
        if rollout.finish_reason == "eos":
            ids = ids[:-1]
        differing += tokenizer.encode(rollout.text, add_special_tokens=False) != ids
    return (
        f"tokenised    tokens of each tag: {sizes}; {differing} of {len(every)} completions have "
        "other ids than their text would get (the sampled ids are trained)"
    )
