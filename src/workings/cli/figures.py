"""The figures that `workings plot --figure` knows, and what lines and panels are called in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from workings.errors import ConfigError, unknown_name

MOST_NAMED = 3
"""Settings that a label may name; runs that differ in more are called by their folders."""
NEVER_NAMED = ("name", "output_dir", "seed", "tracking", "commit", "num_threads", "kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveFigure:
    """A figure of curves over steps.

    Attributes:
        title: its heading.
        metrics: what is drawn, each in a figure of its own where runs recorded it; `eval/reward`
            stands for `eval/SET/reward` of every data set as well.
        by: settings that lines are told apart by, where they differ.
    """

    title: str
    metrics: tuple[str, ...]
    by: tuple[str, ...] = ()


OBJECTIVE = ("objective",)
BATCH = ("epochs_per_rollout", "train_batch_size", "model.name_or_path", "model.adapter")
CURVES: Mapping[str, CurveFigure] = {
    "sft-loss": CurveFigure(
        title="SFT: training loss by number of samples",
        metrics=("train/loss",),
        by=("data.train.limit",),
    ),
    "rl-reward": CurveFigure(
        title="GRPO: validation reward by learning rate",
        metrics=("eval/reward",),
        by=("optimizer.learning_rate",),
    ),
    "module-ablation": CurveFigure(
        title="GRPO: validation reward by objective", metrics=("eval/reward",), by=OBJECTIVE
    ),
    "grpo-reward": CurveFigure(
        title="GRPO: validation reward by batch and starting model",
        metrics=("eval/reward",),
        by=BATCH,
    ),
    "grpo-format-reward": CurveFigure(
        title="GRPO: validation format reward by batch and starting model",
        metrics=("eval/format_reward",),
        by=BATCH,
    ),
    "length": CurveFigure(
        title="Length of completions",
        metrics=("train/completion_length/mean", "eval/avg_response_length/total"),
    ),
    "entropy": CurveFigure(
        title="Entropy of a token",
        metrics=("train/token_entropy", "train/avg_token_entropy", "eval/avg_token_entropy"),
    ),
    "clip-fraction": CurveFigure(title="Share of clipped tokens", metrics=("train/clip_fraction",)),
    "grad-norm": CurveFigure(title="Norm of the gradient", metrics=("train/grad_norm",)),
}
OTHERS = {
    "bars": "accuracy of evaluations by data set; panels by sampling, bars by model",
    "bars-by-model": "the same turned: panels by model, bars by sampling",
    "step0-final": "accuracy at step 0 and at the end, with paired differences",
    "memory": "the largest batch by setting and length, of `workings profile memory`",
}
NAMES = (*CURVES, *OTHERS)


def check_figure(name: str) -> None:
    """ConfigError where there is no such figure."""
    if name not in NAMES:
        raise ConfigError(unknown_name("figure", name, NAMES))


def recorded_names(wanted: str, recorded: Sequence[str]) -> list[str]:
    """The metrics that `wanted` stands for: itself, or that of every data set.

    >>> recorded_names("eval/reward", ["eval/sums/reward", "eval/sums/format_reward"])
    ['eval/sums/reward']
    """
    kind, _, rest = wanted.partition("/")
    if wanted in recorded or kind != "eval":
        return [wanted] if wanted in recorded else []
    of_sets = [name for name in recorded if name.count("/") == rest.count("/") + 2]
    return [name for name in of_sets if name.startswith("eval/") and name.endswith(f"/{rest}")]


def line_labels(
    settings: Sequence[Mapping[str, Any]], folders: Sequence[str], *, by: Sequence[str] = ()
) -> list[str]:
    """What each run is called: by the settings of `by` that differ, else by all that differ.

    `settings` are {dotted path: value} of each run. Runs that differ in their seed alone get the
    same name; runs that differ in too much are called by their `folders`.
    """
    paths = dict.fromkeys(path for one in settings for path in one)
    differing = [
        path
        for path in paths
        if not _within(path, NEVER_NAMED) and len({str(one.get(path)) for one in settings}) > 1
    ]
    chosen = [path for path in differing if _within(path, by)] or differing
    if not chosen or len(chosen) > MOST_NAMED:
        return list(folders)
    labels = [", ".join(phrase(path, one.get(path)) for path in chosen) for one in settings]
    told_apart = {
        tuple(str(one.get(path)) for path in (*differing, "seed")): label
        for one, label in zip(settings, labels, strict=True)
    }
    same_label = {label: [k[:-1] for k, v in told_apart.items() if v == label] for label in labels}
    seeds_only = all(len(set(keys)) == 1 for keys in same_label.values())
    return labels if seeds_only and len(told_apart) == len(labels) else list(folders)


def phrase(path: str, value: Any) -> str:
    """A setting as a reader would say it.

    >>> phrase("optimizer.learning_rate", 1e-05), phrase("data.train.limit", None)
    ('lr 1e-05', 'all samples')
    >>> phrase("objective.reduction", "token_mean"), phrase("model.name_or_path", "runs/sft/final")
    ('reduction token mean', 'from sft/final')
    """
    if path in _PHRASES:
        return _PHRASES[path](value)
    name = path.rpartition(".")[2].replace("_", " ")
    if value is None:
        return f"{name} default"
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {str(value).replace('_', ' ')}"


def _within(path: str, places: Sequence[str]) -> bool:
    """Whether a dotted path is one of the places or stands below one."""
    return any(path == place or path.startswith(f"{place}.") for place in places)


_PHRASES: Mapping[str, Callable[[Any], str]] = {
    "data.train.limit": lambda n: "all samples" if n is None else f"{n:,} samples",
    "optimizer.learning_rate": lambda rate: f"lr {rate:g}",
    "epochs_per_rollout": lambda n: f"{n:g} epoch{'' if n == 1 else 's'} a rollout",
    "train_batch_size": lambda n: "whole rollout a step" if n is None else f"batch {n}",
    "objective.preset": lambda name: str(name),
    "model.name_or_path": lambda path: f"from {'/'.join(PurePath(str(path)).parts[-2:])}",
    "model.adapter": lambda path: f"adapter {path}" if path else "no adapter",
}
