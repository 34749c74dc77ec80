"""What must hold before the first step of a run with teacher traces, checked and said.

Each of these makes training worse in silence: a template that does not end where the traces begin,
a thought that is opened twice, positions that the model has not, a trace without its EOS, a teacher
whose answers the reward does not accept. Source: the issues of LUFFY (arXiv 2504.14945), 14, 29
and 43 among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workings.data.order import epoch_order
from workings.data.templates import PromptTemplate
from workings.data.traces import EncodedTrace
from workings.errors import ConfigError
from workings.rollout.mix import demonstration_rollout
from workings.types import Prompt, Rollout, RolloutGroup

SHORT_THETA, SHORT_CONTEXT = 10_000.0, 4096
"""A rotary base of 10,000 is what models of so many positions are trained with."""
SHOWN = 3

GradeGroups = Callable[[Sequence[RolloutGroup]], Sequence[RolloutGroup]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What one check found; `remedy` says what to do where it did not pass."""

    name: str
    passed: bool
    text: str
    remedy: str = ""


def preflight(
    prompts: Sequence[Prompt],
    traces: Mapping[str, Sequence[EncodedTrace]],
    *,
    template: PromptTemplate,
    model_config: Any,
    eos_token_ids: Sequence[int],
    max_tokens: int,
    grade: GradeGroups,
    is_right: Callable[[Rollout], bool],
    expected_ending: str | None = None,
    min_right: float = 0.9,
    max_graded: int = 256,
    seed: int = 0,
) -> list[str]:
    """One line per check, when all of them pass; ConfigError names all that did not.

    Args:
        prompts: of the training problems.
        traces: problem id to encoded traces.
        template: the template of the prompts.
        model_config: of transformers, for positions and rotary base.
        eos_token_ids: every id that ends a completion.
        max_tokens: the limit on sampled tokens.
        grade: `groups -> graded groups` with the run's reward.
        is_right: whether a graded row is right.
        expected_ending: what every rendered prompt ends with, e.g. "<think>\\n"; None accepts any
            that is the same for all.
        min_right: the least share of teacher rows that have to be graded right.
        max_graded: grade at most so many traces, a seeded subset.
    """
    checks = list(
        preflight_checks(
            prompts,
            traces,
            template=template,
            model_config=model_config,
            eos_token_ids=eos_token_ids,
            max_tokens=max_tokens,
            grade=grade,
            is_right=is_right,
            expected_ending=expected_ending,
            min_right=min_right,
            max_graded=max_graded,
            seed=seed,
        )
    )
    failed = [check for check in checks if not check.passed]
    if failed:
        raise ConfigError(
            "the run cannot learn from these traces:"
            + "".join(f"\n  {check.name}: {check.text}" for check in failed),
            hint="; ".join(dict.fromkeys(check.remedy for check in failed)),
        )
    return [f"preflight: {check.name}: {check.text}" for check in checks]


def preflight_checks(
    prompts: Sequence[Prompt],
    traces: Mapping[str, Sequence[EncodedTrace]],
    *,
    template: PromptTemplate,
    model_config: Any,
    eos_token_ids: Sequence[int],
    max_tokens: int,
    grade: GradeGroups,
    is_right: Callable[[Rollout], bool],
    expected_ending: str | None,
    min_right: float,
    max_graded: int,
    seed: int,
) -> Iterator[Check]:
    """The checks one by one, passed or not; arguments as in `preflight`."""
    guided = [(p, trace) for p in prompts for trace in traces.get(p.problem.id, ())]
    if not guided:
        yield Check(
            name="traces",
            passed=False,
            text=f"none of {len(prompts)} prompts has a trace",
            remedy="give the training data a target column, or another data set of traces",
        )
        return
    with_trace = len({prompt.problem.id for prompt, _ in guided})
    yield Check(
        name="traces",
        passed=True,
        text=f"{len(guided)} for {with_trace} of {len(prompts)} prompts; the others are sampled",
    )
    yield ending_check(prompts, template, expected_ending=expected_ending)
    yield thought_check(guided, template)
    yield eos_check([trace for _, trace in guided], eos_token_ids)
    yield length_check([trace for _, trace in guided], max_tokens)
    yield position_check(prompts, guided, model_config, max_tokens)
    yield teacher_check(
        guided, grade=grade, is_right=is_right, min_right=min_right, most=max_graded, seed=seed
    )


def ending_check(
    prompts: Sequence[Prompt], template: PromptTemplate, *, expected_ending: str | None
) -> Check:
    """Whether every rendered prompt ends as expected, or at least all of them alike."""
    if expected_ending is not None:
        wrong = [prompt for prompt in prompts if not prompt.text.endswith(expected_ending)]
        shown = repr(expected_ending)
    else:
        opened = [template.opens_thought(prompt.text) for prompt in prompts]
        wrong = [p for p, opens in zip(prompts, opened, strict=True) if opens != opened[0]]
        shown = repr(prompts[0].text[-24:])
    if not wrong:
        return Check(name="template", passed=True, text=f"every prompt ends with {shown}")
    return Check(
        name="template",
        passed=False,
        text=f"{len(wrong)} of {len(prompts)} prompts do not end with {shown}; "
        f"{wrong[0].problem.id} ends with {wrong[0].text[-24:]!r}",
        remedy="take a template whose generation prompt ends so: the tokenizer of the base model "
        "has another one than the traces were made with (model.chat_template, or a template with "
        "an ending)",
    )


def thought_check(guided: Sequence[tuple[Prompt, EncodedTrace]], template: PromptTemplate) -> Check:
    """Whether prompt and trace together open the thought once."""
    opening = template.thought_tag
    closing = opening.replace("<", "</", 1)
    twice, never = [], []
    for prompt, trace in guided:
        opened = template.opens_thought(prompt.text)
        before = prompt.text.rstrip().removesuffix(opening).rstrip() if opened else ""
        if opened and (trace.text.lstrip().startswith(opening) or before.endswith(opening)):
            twice.append(trace.id)
        elif not opened and closing in trace.text and opening not in trace.text:
            never.append(trace.id)
    if twice:
        return Check(
            name="thought",
            passed=False,
            text=f"{len(twice)} of {len(guided)} traces open the thought a second time, after a "
            f"prompt that ends with {opening} (first: {twice[0]})",
            remedy=f"take {opening} out of the traces or out of the end of the template",
        )
    if never:
        return Check(
            name="thought",
            passed=False,
            text=f"{len(never)} of {len(guided)} traces close a thought that neither they nor the "
            f"prompt open (first: {never[0]})",
            remedy=f"take a template that ends with {opening}",
        )
    return Check(name="thought", passed=True, text="opened at most once in prompt and trace")


def eos_check(traces: Sequence[EncodedTrace], eos_token_ids: Sequence[int]) -> Check:
    """Whether every trace ends with an EOS id, and has none before."""
    ends = frozenset(eos_token_ids)
    without = [trace.id for trace in traces if trace.ids[-1] not in ends]
    inside = [trace.id for trace in traces if ends & set(trace.ids[:-1])]
    if without or inside:
        fault = (
            f"{len(without)} of {len(traces)} traces do not end with EOS"
            if without
            else (f"{len(inside)} of {len(traces)} traces hold EOS before their end")
        )
        return Check(
            name="EOS",
            passed=False,
            text=f"{fault} {tuple(sorted(ends))} (first: {(without or inside)[0]})",
            remedy="set the tokenizer's eos_token to what ends a turn in its chat template, and "
            "drop traces that were cut",
        )
    return Check(name="EOS", passed=True, text="the last id of every trace, and nowhere before")


def length_check(traces: Sequence[EncodedTrace], max_tokens: int) -> Check:
    """Whether a trace is no longer than a completion may be."""
    longest = max(traces, key=lambda trace: len(trace.ids))
    text = f"the longest trace has {len(longest.ids)} tokens, a completion at most {max_tokens}"
    if len(longest.ids) <= max_tokens:
        return Check(name="lengths", passed=True, text=text)
    return Check(
        name="lengths",
        passed=False,
        text=f"{text} ({longest.id})",
        remedy=f"raise sampling.max_tokens, or set max_trace_length to {max_tokens}",
    )


def position_check(
    prompts: Sequence[Prompt],
    guided: Sequence[tuple[Prompt, EncodedTrace]],
    model_config: Any,
    max_tokens: int,
) -> Check:
    """Whether the model has the positions that the longest prompt and response need."""
    config = (
        model_config.get_text_config()
        if hasattr(model_config, "get_text_config")
        else (model_config)
    )
    longest_prompt = max(len(prompt.ids) for prompt in prompts)
    longest_row = max(len(prompt.ids) + len(trace.ids) for prompt, trace in guided)
    needed = max(longest_prompt + max_tokens, longest_row)
    theta = _rope_theta(config)
    rope = "" if theta is None else f", rotary base {theta:g}"
    limit = getattr(config, "max_position_embeddings", None)
    if limit is None:
        text = f"{needed} are needed; the model states no limit{rope}"
        return Check(name="positions", passed=True, text=text)
    text = f"{longest_prompt} prompt + {max_tokens} response tokens, of the model's {limit}{rope}"
    if needed > limit:
        return Check(
            name="positions",
            passed=False,
            text=f"{needed} are needed, the model has {limit}{rope}",
            remedy="raise max_position_embeddings and rope_theta by the same factor in config.json "
            "(LUFFY: 4096 to 16384 and 10000 to 40000), or lower the limits on prompts and "
            "responses",
        )
    if theta is not None and theta <= SHORT_THETA and needed > SHORT_CONTEXT:
        text += (
            f"; a rotary base of {theta:g} is usual for {SHORT_CONTEXT} positions, so check that "
            "the model was trained on more"
        )
    return Check(name="positions", passed=True, text=text)


def teacher_check(
    guided: Sequence[tuple[Prompt, EncodedTrace]],
    *,
    grade: GradeGroups,
    is_right: Callable[[Rollout], bool],
    min_right: float,
    most: int,
    seed: int,
) -> Check:
    """Whether the run's own reward finds the teacher right, as it should nearly always."""
    order = epoch_order(len(guided), seed=seed, epoch=0)[:most]
    chosen = [guided[place] for place in order]
    groups = grade(
        [
            RolloutGroup(prompt=prompt, rollouts=(demonstration_rollout(trace),))
            for prompt, trace in chosen
        ]
    )
    graded = [
        (trace, group.problem.answer, rollout)
        for (_, trace), group in zip(chosen, groups, strict=True)
        for rollout in group.rollouts
        if rollout.reward is not None
    ]
    wrong = [row for row in graded if not is_right(row[2])]
    share = 1.0 - len(wrong) / max(len(graded), 1)
    text = (
        f"{len(graded) - len(wrong)} of {len(graded)} teacher rows are graded right ({share:.1%})"
    )
    if len(graded) < len(chosen):
        text += f"; {len(chosen) - len(graded)} have a gold that cannot be used"
    if graded and share >= min_right:
        return Check(name="teacher", passed=True, text=text)
    examples = "".join(
        f"\n    {trace.id}: gold {gold!r:.60}, {_finding(rollout)}"
        for trace, gold, rollout in wrong[:SHOWN]
    )
    return Check(
        name="teacher",
        passed=False,
        text=f"{text}, less than {min_right:.0%}{examples}",
        remedy="take the reward that fits the form of the traces (tags, box, thought), or clean "
        "them; preflight.min_right lowers the bound",
    )


def _finding(rollout: Rollout) -> str:
    """What the grader made of a row, and the end of its text."""
    verdict = "" if rollout.grade is None else f"{rollout.grade.verdict}, "
    if rollout.grade is not None and rollout.grade.extracted is not None:
        verdict += f"read as {rollout.grade.extracted!r:.40}, "
    return f"{verdict}reward {rollout.reward:g}, ends with {rollout.text[-40:]!r}"


def _rope_theta(config: Any) -> float | None:
    """The rotary base, where transformers 5 or 4 keeps it; None where there is none."""
    parameters = getattr(config, "rope_parameters", None)
    theta = parameters.get("rope_theta") if isinstance(parameters, Mapping) else None
    theta = getattr(config, "rope_theta", None) if theta is None else theta
    return float(theta) if isinstance(theta, int | float) else None
