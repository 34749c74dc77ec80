"""The largest microbatch of every length that fits, for a run or for several ways to hold it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from workings.cli.profile.trial import ProfiledRun, Trial, TrialProcess
from workings.config.dpo import DPOConfig
from workings.training.profiling.search import largest_that_passes

COMPARED: Mapping[str, tuple[Any, ...]] = {
    "optimizer.offload": (False, True),
    "batch.activation_checkpointing": ("none", "full"),
    "model.attention": ("sdpa", "eager"),
}
"""What `--compare` compares, each with each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A way to hold the run in memory: the settings that make it, and the run with them."""

    settings: Mapping[str, Any]
    run: ProfiledRun

    @property
    def label(self) -> str:
        """In words, for tables and figures."""
        if not self.settings:
            return "as configured"
        return ", ".join(f"{name.rpartition('.')[2]}={value}" for name, value in _plain(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found out about a variant.

    Attributes:
        trials: every one that was made, in order.
        report: of the process: device, parameters, bytes held before a step; empty where not even
            the model fits.
    """

    variant: Variant
    trials: Sequence[Trial]
    report: Mapping[str, Any]

    def largest(self, length: int) -> Trial | None:
        """The trial with most rows of this length that fit."""
        fitting = [t for t in self.trials if t.length == length and t.fits]
        return max(fitting, key=lambda trial: trial.num_rows, default=None)


def variants(run: ProfiledRun, *, compare: bool) -> list[Variant]:
    """The run as it is, or every combination of what is compared."""
    if not compare:
        return [Variant(settings={}, run=run)]
    names = list(COMPARED)
    return [
        Variant(settings=dict(zip(names, values, strict=True)), run=_with(run, names, values))
        for values in itertools.product(*COMPARED.values())
    ]


def search(
    variant: Variant,
    lengths: Sequence[int],
    *,
    most_rows: int,
    num_steps: int,
    limit_bytes: int | None,
    say: Callable[[str], None],
) -> Found:
    """Trials until the largest microbatch of every length is known.

    A longer row never allows more of them, so each length begins where the one before it ended.
    """
    trials: list[Trial] = []
    unit = 2 if isinstance(variant.run, DPOConfig) else 1  # the responses of a pair stay together

    def passes(count: int, *, length: int) -> bool:
        trial = process.trial(unit * count, length)
        trials.append(trial)
        say(f"{variant.label}: {describe(trial)}")
        return trial.fits

    with TrialProcess(variant.run, limit_bytes=limit_bytes, num_steps=num_steps) as process:
        most = max(1, most_rows // unit)
        for length in sorted(lengths):
            if most > 0:
                most = largest_that_passes(partial(passes, length=length), most=most)
        report = process.report
    return Found(variant=variant, trials=trials, report=report)


def describe(trial: Trial) -> str:
    """A trial in one line."""
    size = f"{trial.num_rows} x {trial.length} tokens"
    if not trial.fits:
        return f"{size} do not fit"
    found = f"{size} fit, {trial.peak_bytes / 2**30:.2f} GiB"
    # The first step is not timed: with --steps 1 there is no other.
    return f"{found}, {trial.step_seconds:.2f} s a step" if trial.step_seconds else found


def _with(run: ProfiledRun, names: Sequence[str], values: Sequence[Any]) -> ProfiledRun:
    for name, value in zip(names, values, strict=True):
        section, field = name.split(".")
        changed = getattr(run, section).model_copy(update={field: value})
        run = run.model_copy(update={section: changed})
    if not run.optimizer.offload:
        optimizer = run.optimizer.model_copy(update={"offload_gradients": False})
        run = run.model_copy(update={"optimizer": optimizer})
    return run


def _plain(variant: Variant) -> Iterator[tuple[str, str]]:
    for name, value in variant.settings.items():
        yield name, str(value).lower() if isinstance(value, bool) else str(value)
