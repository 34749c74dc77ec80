"""Which samples of a round of expert iteration are trained, and the file that remembers them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workings.errors import CheckpointError
from workings.tracking.rollouts import prune_steps, read_groups, rollouts_path, write_rollouts
from workings.training.packing import TrainRow
from workings.types import Rollout, RolloutGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The samples to train on, and how many right ones were left out.

    Attributes:
        groups: the kept samples by question, in sampling order; no group is empty.
        num_right: samples with a reward above the threshold.
        num_duplicates: right samples that say the same as an earlier one to the same question.
        num_over_limit: right samples beyond the most for one question.
    """

    groups: tuple[RolloutGroup, ...]
    num_right: int
    num_duplicates: int
    num_over_limit: int

    @property
    def num_rows(self) -> int:
        """Samples to train on."""
        return sum(len(group.rollouts) for group in self.groups)


def keep_right(
    groups: Sequence[RolloutGroup],
    *,
    above: float = 0.0,
    max_per_question: int | None = None,
    drop_duplicates: bool = True,
) -> Kept:
    """The samples whose reward is more than `above`.

    A sample without a reward (its gold is unusable) is never kept. Questions are told apart by the
    problem's id, so that a question drawn twice counts as one. Of more than `max_per_question` the
    first in sampling order stay, which favours none.
    """
    seen: set[tuple[str, tuple[int, ...]]] = set()
    taken: Counter[str] = Counter()
    num_right = num_duplicates = num_over_limit = 0
    kept: list[RolloutGroup] = []
    for group in groups:
        question = group.problem.id
        chosen: list[Rollout] = []
        for rollout in group.rollouts:
            if rollout.reward is None or rollout.reward <= above:
                continue
            num_right += 1
            said = (question, tuple(rollout.ids))
            if drop_duplicates and said in seen:
                num_duplicates += 1
            elif max_per_question is not None and taken[question] >= max_per_question:
                num_over_limit += 1
            else:
                seen.add(said)
                taken[question] += 1
                chosen.append(rollout)
        if chosen:
            kept.append(replace(group, rollouts=tuple(chosen)))
    return Kept(
        groups=tuple(kept),
        num_right=num_right,
        num_duplicates=num_duplicates,
        num_over_limit=num_over_limit,
    )


def kept_rows(groups: Sequence[RolloutGroup]) -> list[TrainRow]:
    """The kept samples as rows: the ids that were sampled, each with its question's prompt."""
    rows: list[TrainRow] = []
    for number, group in enumerate(groups):
        rows += [
            TrainRow(
                key=len(rows) + index,
                group=number,
                prompt_ids=group.prompt.ids,
                response_ids=rollout.ids,
                mask=rollout.mask,
            )
            for index, rollout in enumerate(group.rollouts)
        ]
    return rows


def kept_metrics(groups: Sequence[RolloutGroup], kept: Kept) -> dict[str, float]:
    """Metrics of a round's samples, by their names in the log.

    `token_entropy` estimates the entropy of what was sampled, in nats per token: the mean of minus
    the log-probability of each sampled token, with what top-k, top-p and min-p cut.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    graded = [rollout for rollout in rollouts if rollout.reward is not None]
    lengths = [len(rollout.ids) for group in kept.groups for rollout in group.rollouts]
    solved = {group.problem.id for group in kept.groups}
    metrics = {
        "kept_rows": float(kept.num_rows),
        "kept_fraction": kept.num_rows / len(rollouts),
        "pass_rate": kept.num_right / max(len(graded), 1),
        "questions_solved": len(solved) / len({group.problem.id for group in groups}),
        "duplicates_dropped": float(kept.num_duplicates),
        "over_limit_dropped": float(kept.num_over_limit),
        "empty_iterations": float(kept.num_rows == 0),
    }
    if lengths:
        metrics["kept_length/mean"] = sum(lengths) / len(lengths)
    surprise = [
        math.log(mass) - logprob
        for rollout in rollouts
        for logprob, mass in zip(rollout.sampling_logprobs, rollout.kept_mass, strict=True)
        if not math.isnan(logprob)
    ]
    if surprise:
        metrics["token_entropy"] = sum(surprise) / len(surprise)
    return metrics


class KeptFiles:
    """The kept samples of every round of a run, one file each.

    A round is trained over several optimizer steps; a run resumed between them reads its rows here,
    since the weights that sampled them are gone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """Store the samples of the round sampled at `step`; the file is whole or absent."""
        write_rollouts(self._folder, step, groups)

    def read(self, step: int) -> list[RolloutGroup]:
        """The samples stored at `step`; CheckpointError where their file is missing."""
        path = rollouts_path(self._folder, step)
        if not path.is_file():
            raise CheckpointError(
                f"{path} is missing; it holds the samples that the round in progress trains on",
                hint="resume from a checkpoint at the end of a round",
            )
        return read_groups(path)

    def truncate_after(self, step: int) -> None:
        """Remove what was sampled after `step`: what a resumed run samples again."""
        prune_steps(self._folder, after_step=step)
