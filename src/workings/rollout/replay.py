"""The policy's own successes, kept for replay. Source: ExGRPO (arXiv 2510.02245) and its code.

A question enters the buffer when some of its rollouts are right and some are not, and stands in the
bucket of how many were right when it was last seen. What the published code never does, and this
does: rollouts leave by age and by number, and the whole buffer is part of a checkpoint.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from workings.errors import CheckpointError, ConfigError, unknown_name
from workings.rollout.stored import StoredRollout, stored_rollout
from workings.seeds import derive_seed
from workings.types import Rollout, RolloutGroup

BucketWeighting = Literal["normal", "linear", "sqrt", "linear_clip"]
STATE_VERSION = 1


def bucket_weight(
    num_right: int,
    num_generations: int,
    *,
    weighting: BucketWeighting = "normal",
    sigma: float = 1.0,
) -> float:
    """The weight of the bucket of questions with k = `num_right` of n right.

    normal: the density of N(n/2, sigma) at k, sigma in counts. linear: k/n. sqrt: sqrt(k/n).
    linear_clip: min(k/n, 1/2). The paper writes N(accuracy; 0.5, 1), which is nearly flat; its code
    has the normal of counts.

    >>> [round(bucket_weight(k, 8), 4) for k in range(1, 5)]
    [0.0044, 0.054, 0.242, 0.3989]
    """
    share = num_right / num_generations
    if weighting == "normal":
        distance = (num_right - num_generations / 2) / sigma
        return math.exp(-0.5 * distance * distance) / (sigma * math.sqrt(2 * math.pi))
    if weighting == "linear":
        return share
    if weighting == "sqrt":
        return math.sqrt(share)
    if weighting == "linear_clip":
        return min(share, 0.5)
    raise ConfigError(unknown_name("bucket weighting", weighting, get_args(BucketWeighting)))


def bucket_shares(
    counts: Iterable[int],
    num_generations: int,
    *,
    weighting: BucketWeighting = "normal",
    sigma: float = 1.0,
) -> dict[int, float]:
    """The chance of each bucket among those that hold questions; the chances add up to 1.

    >>> {k: round(share, 4) for k, share in bucket_shares(range(3, 6), 8).items()}
    {3: 0.2741, 4: 0.4519, 5: 0.2741}
    """
    weights = {
        count: bucket_weight(count, num_generations, weighting=weighting, sigma=sigma)
        for count in counts
    }
    total = sum(weights.values())
    if total <= 0.0:  # so far from the mean of a narrow normal that every density is 0
        return dict.fromkeys(weights, 1.0 / max(len(weights), 1))
    return {count: weight / total for count, weight in weights.items()}


@dataclass(slots=True)
class _Entry:
    """The successes of one question, and how many of its rollouts were right when last seen."""

    num_right: int
    rollouts: list[StoredRollout] = field(default_factory=list)


class ReplayBuffer:
    """Questions with the policy's own right rollouts and the log-probabilities they had then.

    Args:
        num_generations: rows of a group, the replayed one included.
        lower, upper: a question enters with k rows right if lower < k <= upper; upper None is
            `num_generations - 1`.
        weighting, sigma: see `bucket_weight`.
        max_age: rollouts leave after so many steps; None keeps them.
        max_rollouts: most rollouts kept, the oldest leave first; None has no limit.
    """

    def __init__(
        self,
        *,
        num_generations: int,
        lower: int = 0,
        upper: int | None = None,
        weighting: BucketWeighting = "normal",
        sigma: float = 1.0,
        max_age: int | None = None,
        max_rollouts: int | None = None,
    ) -> None:
        upper = num_generations - 1 if upper is None else upper
        if num_generations < 2:
            raise ConfigError(
                f"num_generations={num_generations}; replay needs 2 rows in a group or more, the "
                "replayed one and a fresh one"
            )
        if not 0 <= lower < upper <= num_generations:
            raise ConfigError(
                f"a question enters the replay with {lower} < k <= {upper} of {num_generations} "
                "rows right; expected 0 <= lower < upper <= num_generations"
            )
        if sigma <= 0:
            raise ConfigError(f"bucket_sigma={sigma}; expected more than 0")
        for name, value in (("max_age", max_age), ("max_rollouts", max_rollouts)):
            if value is not None and value < 1:
                raise ConfigError(f"replay {name}={value}; expected 1 or more, or null for none")
        bucket_weight(1, num_generations, weighting=weighting, sigma=sigma)  # checks the name
        self._num_generations = num_generations
        self._lower, self._upper = lower, upper
        self._weighting, self._sigma = weighting, sigma
        self._max_age, self._max_rollouts = max_age, max_rollouts
        self._entries: dict[str, _Entry] = {}
        self._retired: set[str] = set()

    def __len__(self) -> int:
        """Questions that can be replayed."""
        return len(self._entries)

    @property
    def num_rollouts(self) -> int:
        """Rollouts kept."""
        return sum(len(entry.rollouts) for entry in self._entries.values())

    @property
    def retired(self) -> frozenset[str]:
        """Problems that the policy solved in every row; they are trained no more."""
        return frozenset(self._retired)

    def candidates(self, problem_id: str) -> tuple[StoredRollout, ...]:
        """The stored rollouts of a question, the oldest first; empty for one that has none."""
        entry = self._entries.get(problem_id)
        return () if entry is None else tuple(entry.rollouts)

    def add(
        self,
        groups: Sequence[RolloutGroup],
        *,
        step: int,
        is_right: Callable[[Rollout], bool],
        old_logprobs: Sequence[Sequence[Sequence[float]]] | None = None,
    ) -> None:
        """Take the successes of a graded batch, then let the old ones go.

        k counts the right rows of a group, a replayed one included and a teacher's left out. All
        right: the question is retired. lower < k <= upper: its fresh right rollouts are stored and
        k is its bucket. Otherwise it keeps what it has. A group with an unusable gold is passed
        over, and a rollout that is stored already is not stored again.

        Args:
            step: of the batch; ages count from it.
            old_logprobs: [group][row][token], from the trainer at rollout weights; without it the
                behaviour log-probability of the engine is recorded.
        """
        for number, group in enumerate(groups):
            rows = [r for r in enumerate(group.rollouts) if r[1].source != "demonstration"]
            if not rows or any(rollout.reward is None for _, rollout in rows):
                continue
            right = [(place, rollout) for place, rollout in rows if is_right(rollout)]
            problem_id = group.problem.id
            if len(right) == len(rows):
                self._retired.add(problem_id)
                self._entries.pop(problem_id, None)
            elif problem_id not in self._retired and self._lower < len(right) <= self._upper:
                entry = self._entries.setdefault(problem_id, _Entry(num_right=len(right)))
                entry.num_right = len(right)
                known = {rollout.packed_ids for rollout in entry.rollouts}
                for place, rollout in right:
                    if rollout.source != "policy":
                        continue
                    stored = stored_rollout(
                        rollout,
                        step=step,
                        logprobs=None if old_logprobs is None else old_logprobs[number][place],
                        problem_id=problem_id,
                    )
                    if stored.packed_ids not in known:
                        known.add(stored.packed_ids)
                        entry.rollouts.append(stored)
        self.evict(step)

    def evict(self, step: int) -> None:
        """Drop rollouts beyond the maximum age, then the oldest beyond the maximum number."""
        oldest = -math.inf if self._max_age is None else step - self._max_age
        for entry in self._entries.values():
            entry.rollouts = [kept for kept in entry.rollouts if kept.step >= oldest]
        surplus = 0 if self._max_rollouts is None else self.num_rollouts - self._max_rollouts
        if surplus > 0:
            by_age = sorted(
                (rollout.step, problem_id, place)
                for problem_id, entry in self._entries.items()
                for place, rollout in enumerate(entry.rollouts)
            )
            leaving = {(problem_id, place) for _, problem_id, place in by_age[:surplus]}
            for problem_id, entry in self._entries.items():
                entry.rollouts = [
                    rollout
                    for place, rollout in enumerate(entry.rollouts)
                    if (problem_id, place) not in leaving
                ]
        self._entries = {key: entry for key, entry in self._entries.items() if entry.rollouts}

    def draw(
        self, count: int, *, seed: int, step: int, among: Collection[str] | None = None
    ) -> list[str]:
        """Ids of up to `count` different questions: a bucket by weight, then one of it uniformly.

        A bucket that runs out leaves its share to the others. The draws are a function of
        (seed, step) and of what is stored, not of the order in which it came.

        Args:
            among: only these problems; None takes all.
        """
        buckets: dict[int, list[str]] = {}
        for problem_id in sorted(self._entries):
            if among is None or problem_id in among:
                buckets.setdefault(self._entries[problem_id].num_right, []).append(problem_id)
        draws = random.Random(derive_seed(seed, "replay", step))
        drawn: list[str] = []
        while buckets and len(drawn) < count:
            shares = bucket_shares(
                sorted(buckets),
                self._num_generations,
                weighting=self._weighting,
                sigma=self._sigma,
            )
            key = list(shares)[_place(list(shares.values()), draws.random())]
            bucket = buckets[key]
            drawn.append(bucket.pop(int(draws.random() * len(bucket))))
            if not bucket:
                del buckets[key]
        return drawn

    def metrics(self, step: int) -> dict[str, float]:
        """Sizes, ages in steps, questions in each bucket, and retired questions."""
        ages = [step - kept.step for entry in self._entries.values() for kept in entry.rollouts]
        counts = dict.fromkeys(range(self._lower + 1, self._upper + 1), 0)
        for entry in self._entries.values():
            counts[entry.num_right] = counts.get(entry.num_right, 0) + 1
        return {
            "replay/questions": float(len(self)),
            "replay/rollouts": float(len(ages)),
            "replay/retired": float(len(self._retired)),
            "replay/age/mean": sum(ages) / max(len(ages), 1),
            "replay/age/max": float(max(ages, default=0)),
            **{f"replay/bucket/{key}": float(count) for key, count in sorted(counts.items())},
        }

    def to_state(self) -> dict[str, object]:
        """All that is stored, as dictionaries, lists, numbers, text and bytes.

        `models.tensors.save_tensors` writes it and `load_tensors` reads it, without a pickle that
        could run code.
        """
        return {
            "version": STATE_VERSION,
            "retired": sorted(self._retired),
            "entries": [
                {
                    "problem_id": problem_id,
                    "num_right": entry.num_right,
                    "rollouts": [rollout.to_state() for rollout in entry.rollouts],
                }
                for problem_id, entry in self._entries.items()
            ],
        }

    def load_state(self, state: object) -> None:
        """Hold what `to_state` gave, under this buffer's own settings.

        CheckpointError for a state of another kind or version.
        """
        if not isinstance(state, Mapping) or state.get("version") != STATE_VERSION:
            raise CheckpointError(
                "this is not the state of a replay buffer of this version",
                hint="resume with the version that wrote it, or start again under another name=",
            )
        try:
            entries = {
                str(entry["problem_id"]): _Entry(
                    num_right=int(entry["num_right"]),
                    rollouts=[StoredRollout.from_state(kept) for kept in entry["rollouts"]],
                )
                for entry in state["entries"]
            }
            retired = {str(problem_id) for problem_id in state["retired"]}
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the state of the replay buffer is damaged: {error!r}"
            ) from error
        self._entries, self._retired = entries, retired


def _place(shares: Sequence[float], draw: float) -> int:
    """The index that `draw` in [0, 1) falls on."""
    left = draw
    for place, share in enumerate(shares):
        left -= share
        if left < 0.0:
            return place
    return len(shares) - 1
