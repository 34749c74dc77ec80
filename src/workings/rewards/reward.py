"""What the loops reward: built once by `build_reward`, applied by `grade_groups`.

groups ── gold usable? ── no ──> reward None, verdict bad_gold
   │ yes
all rollouts of all groups as one batch
   ├── answer reward (text in tags or in a box): components "format" and "answer", and a grade
   ├── components in TRL form (the tag rewards, a user's own)
   └── length terms
weighted sum ──> Rollout.reward
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from workings.data.choices import LABELS
from workings.data.tags import Tags
from workings.errors import ConfigError, unknown_name
from workings.grading.gold import gold_fault
from workings.grading.grader import Grader
from workings.grading.policy import GradingPolicy
from workings.rewards.components import Component, component_values, rows_of
from workings.rewards.length import length_penalty, overlong_shaping
from workings.rewards.r1_zero import AnswerFormat, AnswerScore, Mode, choose_equality, score_answers
from workings.rewards.strict_equality import Equality
from workings.rewards.tag_profiles import ProfileName
from workings.rewards.tags import TagRewards
from workings.types import Grade, Rollout, RolloutGroup, Verdict

RewardName = Literal["r1_zero", "question_only", "think_boxed", "tags"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReward:
    """The r1_zero, question_only or think_boxed reward.

    `answer_weight` times the reward paid and `format_weight` times the format go into the total;
    the published rewards are 1 and 0.
    """

    answer_format: AnswerFormat
    mode: Mode
    equality: Equality
    answer_weight: float = 1.0
    format_weight: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthTerms:
    """Terms of the number of sampled tokens; all off by default.

    Attributes:
        max_tokens: the sampling limit M.
        overlong_buffer: C of DAPO's overlong shaping, 0 is off (component "overlong").
        penalty: w of the linear penalty -w L / M, 0 is off (component "length_penalty").
        only_correct: the penalty is for right answers only, so that short wrong ones gain nothing.
    """

    max_tokens: int = 0
    overlong_buffer: int = 0
    overlong_weight: float = 1.0
    penalty: float = 0.0
    only_correct: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A weighted sum of components; make one with `build_reward`.

    Attributes:
        settings: what the numbers depend on, to be stored beside them.
        answer: the r1_zero, question_only or think_boxed reward, None without one.
        components: functions in TRL form.
        length: the length terms.
        solution_grade: grades of (texts, golds) to fill in where no answer reward does.
        gold_fault: why a gold answer cannot be used, None where it can.
    """

    settings: Mapping[str, object]
    answer: AnswerReward | None = None
    components: tuple[Component, ...] = ()
    length: LengthTerms = field(default_factory=LengthTerms)
    solution_grade: Callable[[Sequence[str], Sequence[str]], list[Grade]] | None = None
    gold_fault: Callable[[object], str | None]

    @property
    def weights(self) -> dict[str, float]:
        """Component to its factor in the total, for those with one."""
        weights = {component.name: component.weight for component in self.components}
        if self.answer is not None:
            weights |= {"answer": self.answer.answer_weight, "format": self.answer.format_weight}
        if self.length.overlong_buffer:
            weights["overlong"] = self.length.overlong_weight
        if self.length.penalty:
            weights["length_penalty"] = 1.0
        return {name: weight for name, weight in weights.items() if weight}


def build_reward(
    name: RewardName,
    *,
    grader: Grader | None = None,
    mode: Mode = "strict",
    fast: bool = True,
    strict_compat: bool = True,
    profile: ProfileName = "contract",
    tags: Tags | None = None,
    eos_token: str | None = None,
    weights: Mapping[str, float] | None = None,
    use_format_exact: bool = True,
    use_format_approximate: bool = True,
    use_answer_check: bool = True,
    use_number_check: bool = True,
    max_tokens: int | None = None,
    overlong_buffer: int = 0,
    length_penalty_weight: float = 0.0,
    penalise_only_correct: bool = False,
    extra_components: Sequence[Component] = (),
) -> Reward:
    """The reward by that name.

    `weights` are by component: "format" and "answer" (0 and 1 by default: format alone is not
    paid), the names of the tag functions, "overlong", and those of `extra_components`. `grader` is
    asked about expressions (None: a shared one, started on first need); with the tag rewards it
    fills `Rollout.grade`, and None leaves that empty. The length terms need `max_tokens`.
    """
    if name not in get_args(RewardName):
        raise ConfigError(unknown_name("reward", name, get_args(RewardName)))
    if mode not in get_args(Mode):
        raise ConfigError(unknown_name("reward mode", mode, get_args(Mode)))
    if grader is not None and grader.policy.extraction == "lenient":
        raise ConfigError(
            "a reward was given a grader with the extraction policy 'lenient'",
            hint="take 'boxed' or 'tag': a policy would learn to write marks instead of answers",
        )
    weights = dict(weights or {})
    rewards = TagRewards(tags=tags or Tags(), profile=profile, eos_token=eos_token)
    components = list(extra_components)
    if name == "tags":
        functions = rewards.functions(
            use_format_exact=use_format_exact,
            use_format_approximate=use_format_approximate,
            use_answer_check=use_answer_check,
            use_number_check=use_number_check,
        )
        components = [Component(name=key, function=f) for key, f in functions.items()] + components
    settings: dict[str, object] = {"reward": name, "profile": profile}
    answer = None
    if name != "tags":
        settings = {"reward": name, "mode": mode, "fast": fast, "strict_compat": strict_compat}
        answer = AnswerReward(
            answer_format=name,
            mode=mode,
            equality=choose_equality(fast=fast, strict_compat=strict_compat, grader=grader),
            answer_weight=weights.pop("answer", 1.0),
            format_weight=weights.pop("format", 0.0),
        )
    length = _length_terms(
        max_tokens,
        overlong_buffer,
        weights.pop("overlong", 1.0) if overlong_buffer else 1.0,
        length_penalty_weight,
        penalise_only_correct,
    )
    return Reward(
        settings=settings,
        answer=answer,
        components=_weighted(components, weights, has_answer=answer is not None),
        length=length,
        solution_grade=_solution_grades(rewards, grader) if name == "tags" and grader else None,
        gold_fault=_gold_check(name, grader),
    )


def grade_groups(groups: Sequence[RolloutGroup], reward: Reward) -> list[RolloutGroup]:
    """The same groups with `reward`, `components` and `grade` of every rollout filled in.

    All rollouts are graded as one batch. A group whose gold cannot be used gets the reward None and
    the verdict "bad_gold"; a rollout that every component skips gets the reward None.
    """
    usable = [group for group in groups if reward.gold_fault(group.problem.answer) is None]
    graded = iter(_grade_rollouts(usable, reward))
    usable_ids = set(map(id, usable))
    result = []
    for group in groups:
        if id(group) in usable_ids:
            rollouts = tuple(next(graded) for _ in group.rollouts)
        else:
            rollouts = tuple(map(_with_bad_gold, group.rollouts))
        result.append(replace(group, rollouts=rollouts))
    return result


def _grade_rollouts(groups: Sequence[RolloutGroup], reward: Reward) -> list[Rollout]:
    rows = rows_of(groups)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    scores: Sequence[AnswerScore | None] = [None] * len(rollouts)
    if reward.answer is not None and rollouts:
        scores = score_answers(
            rows.completions,
            [[answer] for answer in rows.answers],
            answer_format=reward.answer.answer_format,
            mode=reward.answer.mode,
            equality=reward.answer.equality,
            labels=[
                str(group.problem.extra.get(LABELS, "")) for group in groups for _ in group.rollouts
            ],
        )
    grades: Sequence[Grade | None] = [score.grade if score else None for score in scores]
    if reward.solution_grade is not None and rollouts:
        grades = reward.solution_grade(rows.completions, rows.answers)
    values = [component_values(component, rows) for component in reward.components]
    return [
        _rewarded(rollout, reward, scores[row], grades[row], [column[row] for column in values])
        for row, rollout in enumerate(rollouts)
    ]


def _rewarded(
    rollout: Rollout,
    reward: Reward,
    score: AnswerScore | None,
    grade: Grade | None,
    values: Sequence[float | None],
) -> Rollout:
    components: dict[str, float] = {}
    terms: list[float] = []
    if reward.answer is not None and score is not None:
        components |= {"format": score.format, "answer": score.answer}
        terms.append(
            reward.answer.answer_weight * score.reward + reward.answer.format_weight * score.format
        )
    for component, value in zip(reward.components, values, strict=True):
        if value is not None:
            components[component.name] = value
            terms.append(component.weight * value)
    if terms:
        correct = grade is not None and grade.correct
        for name, weight, value in _length_values(reward.length, len(rollout.ids), correct):
            components[name] = value
            terms.append(weight * value)
    return replace(
        rollout, reward=sum(terms) if terms else None, components=components, grade=grade
    )


def _length_values(
    length: LengthTerms, num_tokens: int, correct: bool
) -> list[tuple[str, float, float]]:
    """(component name, weight, value) of the terms that are on."""
    values = []
    if length.overlong_buffer:
        value = overlong_shaping(
            num_tokens, max_tokens=length.max_tokens, buffer=length.overlong_buffer
        )
        values.append(("overlong", length.overlong_weight, value))
    if length.penalty:
        applies = correct or not length.only_correct
        value = length_penalty(num_tokens, max_tokens=length.max_tokens, weight=length.penalty)
        values.append(("length_penalty", 1.0, value if applies else 0.0))
    return values


def _with_bad_gold(rollout: Rollout) -> Rollout:
    return replace(rollout, reward=None, components={}, grade=Grade(verdict=Verdict.BAD_GOLD))


def _length_terms(
    max_tokens: int | None,
    overlong_buffer: int,
    overlong_weight: float,
    penalty: float,
    only_correct: bool,
) -> LengthTerms:
    if not overlong_buffer and not penalty:
        return LengthTerms()
    if max_tokens is None:
        raise ConfigError(
            "a length term needs the limit on sampled tokens", hint="set sampling.max_tokens"
        )
    if overlong_buffer:
        overlong_shaping(0, max_tokens=max_tokens, buffer=overlong_buffer)  # checks the numbers
    return LengthTerms(
        max_tokens=max_tokens,
        overlong_buffer=overlong_buffer,
        overlong_weight=overlong_weight,
        penalty=penalty,
        only_correct=only_correct,
    )


def _weighted(
    components: Sequence[Component], weights: Mapping[str, float], *, has_answer: bool
) -> tuple[Component, ...]:
    """The components with their weights; ConfigError for a weight or name that fits nothing."""
    names = [component.name for component in components]
    reserved = ["format", "answer"] if has_answer else []
    for name in weights:
        if name not in names:
            raise ConfigError(unknown_name("reward component", name, [*names, *reserved]))
    taken = [*names, *reserved, "overlong", "length_penalty"]
    twice = sorted({name for name in taken if taken.count(name) > 1})
    if twice:
        raise ConfigError(f"two reward components are called {twice[0]!r}; rename one")
    return tuple(
        replace(component, weight=weights.get(component.name, component.weight))
        for component in components
    )


def _solution_grades(
    rewards: TagRewards, grader: Grader
) -> Callable[[Sequence[str], Sequence[str]], list[Grade]]:
    def grade(texts: Sequence[str], golds: Sequence[str]) -> list[Grade]:
        return grader.compare_batch([rewards.solution(text) for text in texts], golds)

    return grade


def _gold_check(name: RewardName, grader: Grader | None) -> Callable[[object], str | None]:
    if name == "tags":
        return _blank_gold  # the tag rewards compare text, so any other gold will do
    if grader is not None:
        return grader.check_gold
    policy = GradingPolicy()

    def check(gold: object) -> str | None:
        return gold_fault(gold, max_length=policy.max_answer_length, max_nesting=policy.max_depth)

    return check


def _blank_gold(gold: object) -> str | None:
    return None if isinstance(gold, str) and gold.strip() else f"it is empty or no text: {gold!r}"
