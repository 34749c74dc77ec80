"""What an evaluation will do, known before a model loads: settings, folders, what is there already.

Imports no torch, so that stored responses are graded again, and settings that do not fit them are
refused, at once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from workings.cli.light_parts import (
    build_grader,
    build_run_reward,
    build_sampling,
    dataset_name,
    evaluation_settings,
)
from workings.config.dataset import JUDGED_RULES
from workings.config.evaluation import EvalConfig
from workings.config.sections import DatasetConfig
from workings.config.sources import RESOLVED_NAME, read_yaml
from workings.data.templates import load_template
from workings.errors import ConfigError
from workings.evaluation.judged import (
    ARRAY_FILE,
    JUDGEMENT_FILE,
    JUDGEMENTS_FILE,
    LINES_FILE,
)
from workings.evaluation.reports import RESULTS_FILE, SUMMARY_FILE, read_summary
from workings.evaluation.responses import ResponseStore, differing_values
from workings.grading.grader import Grader
from workings.rewards.reward import Reward
from workings.seeds import derive_seed
from workings.tracking.environment import package_versions
from workings.tracking.jsonl import FILE_NAME

VERSIONED = ("workings", "torch", "transformers", "tokenizers", "math-verify", "sympy")
VALIDATION = "validation"
"""What the held-out part of training rows is called in metrics and folders."""
OF_THE_REWARD = frozenset({"grader", "reward"})
"""Settings that responses do not depend on."""
ON_RECORD = frozenset({"versions", "num_samples_asked"})
"""What is stored and never compared."""
OF_THE_MODEL = frozenset({"backend", "eos_token"})
"""What is known only once the model has loaded."""
WIN_RATE = JUDGED_RULES[0]
WRITTEN = (RESULTS_FILE, SUMMARY_FILE, ARRAY_FILE, LINES_FILE, JUDGEMENT_FILE, JUDGEMENTS_FILE)
"""Files of a data set besides its responses."""
Settings = Mapping[str, Any]
Action = Literal["sample", "go on", "grade", "keep"]


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


def evaluation_seed(config: EvalConfig) -> int:
    """The seed of an evaluation's samples."""
    return derive_seed(config.seed, "evaluation")


def num_samples_of(config: EvalConfig, dataset: DatasetConfig) -> int:
    """Completions of each problem: as the run says, else by the data set's own rule.

    Under greedy decoding all completions of a problem are the same, so that one is enough.
    ConfigError for several where a judge compares one reply with one reference.
    """
    if dataset.counted == WIN_RATE and (config.num_samples or 1) > 1:
        raise ConfigError(
            f"num_samples={config.num_samples}: {dataset_name(dataset)} is counted as {WIN_RATE}, "
            "of one reply to each instruction",
            hint="evaluate it by itself, without num_samples or with num_samples=1",
        )
    if config.num_samples is not None:
        return config.num_samples
    return 1 if config.sampling.temperature == 0 else dataset.num_samples


def evaluation_reward(config: EvalConfig, grader: Grader, *, eos_token: str | None) -> Reward:
    """The reward that an evaluation grades by.

    Its length terms count from the limit of the run that is measured again, or from our own.
    """
    held_out = config.held_out
    max_tokens = held_out.reward_max_tokens if held_out is not None else None
    return build_run_reward(
        config.reward,
        grader,
        eos_token=eos_token,
        max_tokens=config.sampling.max_tokens if max_tokens is None else max_tokens,
    )


def planned_settings(config: EvalConfig, dataset: DatasetConfig, reward: Reward) -> dict[str, Any]:
    """What the numbers depend on, in plain JSON, all but what the model will say."""
    model = config.model
    settings = {
        **evaluation_settings(
            model=model.name_or_path if model.adapter is None else model.adapter,
            template=config.template,
            engine="",
            sampling=build_sampling(config.sampling, load_template(config.template)),
            num_samples=num_samples_of(config, dataset),
            seed=evaluation_seed(config),
            reward=reward,
        ),
        "num_samples_asked": config.num_samples,
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
    del settings["backend"]
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


def planned(config: EvalConfig) -> list[dict[str, Any]]:
    """The settings of every data set; a reward that cannot be built is an error here."""
    with build_grader(config.grader) as grader:
        reward = evaluation_reward(config, grader, eos_token=None)
        return [planned_settings(config, dataset, reward) for dataset in config.datasets]


def stored_settings(folder: Path) -> Settings | None:
    """What a data set's folder was measured with; None where nothing is there."""
    plan = ResponseStore(folder).plan()
    if plan is not None:
        return plan.settings
    if not (folder / SUMMARY_FILE).is_file():
        return None
    settings: Settings | None = read_summary(folder).get("settings")
    return settings


def refuse_other_runs(folder: Path, names: Sequence[str] = ()) -> None:
    """ConfigError where the folder of an evaluation, or of one of its data sets, is another run's.

    An evaluation whose folder holds settings alone is none yet: its model did not load.
    """
    held = _run_in(folder, evaluation="")
    place = folder
    for name in names:
        if not held:
            place = folder / name
            held = _run_in(place, evaluation="another evaluation")
    if held:
        raise ConfigError(
            f"{place} holds {held}; this evaluation would overwrite its files",
            hint="give the evaluation a name of its own, name=...",
        )


def _run_in(folder: Path, *, evaluation: str) -> str:
    """What a run in `folder` is called, `evaluation` for an evaluation; "" where there is none."""
    file = folder / RESOLVED_NAME
    if not file.is_file():
        return f"the {FILE_NAME} of another run" if (folder / FILE_NAME).is_file() else ""
    stored = read_yaml(file)
    kind = stored.get("kind")
    if kind == "eval":
        return evaluation
    return f"the {kind} run {stored.get('name')!r}" if kind else f"a {RESOLVED_NAME} of no kind"


def stored_data_sets(folder: Path, names: Sequence[str] = ()) -> dict[str, str]:
    """Every data set that has been sampled in the folder, `names` first, to what it has.

    "results", or "responses" that were not graded.
    """
    places = [path.name for path in sorted(folder.iterdir())] if folder.is_dir() else []
    found = {}
    for name in dict.fromkeys([*names, *places]):
        if (folder / name / SUMMARY_FILE).is_file():
            found[name] = "results"
        elif ResponseStore(folder / name).begun:
            found[name] = "responses"
    return found


def describe_stored(found: Mapping[str, str]) -> str:
    """What a folder holds.

    >>> describe_stored({"gsm8k": "results", "math500": "responses", "aime24": "results"})
    'results for gsm8k, aime24 and responses for math500'
    """
    parts = []
    for what in ("results", "responses"):
        names = [name for name, one in found.items() if one == what]
        parts += [f"{what} for {', '.join(names)}"] if names else []
    return " and ".join(parts)


def check_folder(folder: Path, names: Sequence[str], *, asked: bool) -> None:
    """ConfigError where an evaluation is in the folder that this one would be mixed with.

    That is any evaluation, unless it was `asked` for to go on with it or to begin it anew, and it
    has no other data sets than `names`: those would keep their numbers under settings that the
    folder no longer tells.
    """
    found = stored_data_sets(folder, names)
    if not found:
        return
    exists = f"the evaluation {folder} exists, with {describe_stored(found)}"
    others = [name for name in found if name not in names]
    if others:
        raise ConfigError(
            f"{exists}; {', '.join(others)} is not asked for now",
            hint="name=... starts another beside it; --resume and --fresh need all of its data "
            "sets in datasets=[...]",
        )
    if not asked:
        raise ConfigError(
            exists,
            hint="--resume keeps what was sampled with the same settings and does the rest; "
            "--fresh begins anew; name=... starts another beside it",
        )
    if not (folder / RESOLVED_NAME).is_file():
        raise ConfigError(
            f"{folder} holds {describe_stored(found)}, which no evaluation of this folder wrote: "
            f"there is no {RESOLVED_NAME}",
            hint="it may be a part of a training run; give the evaluation another name=...",
        )


def action(folder: Path, settings: Settings) -> Action:
    """What is left to do for a data set whose folder is gone on with.

    ConfigError names every setting, with both values, in which its responses differ from
    `settings`. A reward is no such setting: the responses are graded again.
    """
    store = ResponseStore(folder)
    stored = stored_settings(folder)
    if stored is None:
        return "sample"
    left_out = ON_RECORD | (OF_THE_MODEL - settings.keys())
    if store.plan() is None:  # an earlier version stored less
        left_out |= settings.keys() ^ stored.keys()
    refuse_other_settings(
        folder, differing_values(stored, settings, leave_out=left_out | OF_THE_REWARD)
    )
    if not store.complete and store.begun:
        return "go on"
    if not (folder / SUMMARY_FILE).is_file():
        return "grade" if store.complete else "sample"
    measured = read_summary(folder).get("settings", {})
    if not differing_values(measured, settings, leave_out=left_out):
        return "keep"
    return "grade" if store.complete else "sample"


def refuse_other_settings(folder: Path, differing: Sequence[str]) -> None:
    """ConfigError where responses in `folder` were sampled under other settings."""
    if differing:
        listed = "".join(f"\n  {line}" for line in differing)
        raise ConfigError(
            f"{folder} holds responses under other settings:{listed}",
            hint="give the stored values to go on, --fresh to begin anew, or another name=...",
        )


def discard(folder: Path) -> None:
    """Remove what an evaluation of a data set, and its judge, have written into its folder."""
    ResponseStore(folder).discard()
    for name in WRITTEN:
        (folder / name).unlink(missing_ok=True)
