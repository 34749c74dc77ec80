"""The parts of a GRPO run whose groups hold rows that the policy did not sample."""

from __future__ import annotations

from collections.abc import Sequence

from workings.cli.build import demonstrations_at
from workings.cli.runs import Parts
from workings.config.grpo import GRPOConfig
from workings.data.demonstrations import teacher_traces
from workings.data.traces import encode_traces, traces_by_question
from workings.errors import DataError
from workings.rewards.four_classes import answer_right
from workings.rewards.reward import grade_groups
from workings.rollout.engine import SamplingParams
from workings.rollout.replay import ReplayBuffer
from workings.training.preflight import preflight
from workings.training.replay_score import replay_scorer
from workings.training.sampling_plan import prefix_schedule
from workings.training.source import Guidance, Replay
from workings.types import Problem, Prompt


def build_guidance(
    config: GRPOConfig,
    parts: Parts,
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    sampling: SamplingParams,
) -> Guidance | None:
    """The teacher's traces of a run, checked against template, model and reward before step 0.

    None where the objective has no teacher rows.
    """
    objective = config.objective.resolve()
    if objective.num_off == 0:
        return None
    settings, log = config.off_policy, parts.recorder.log
    prefix_schedule(config)
    if settings.traces is None:
        by_problem = teacher_traces(problems)
        where = "the target column of data.train"
    else:
        rows = demonstrations_at(settings.traces, seed=config.seed, log=log).items
        matched = traces_by_question(problems, rows)
        by_problem, where = matched.by_problem, settings.traces.path
        log(f"traces: {matched.num_unmatched:,} answer a question that is not in data.train")
    encoded = encode_traces(
        prompts,
        by_problem,
        parts.prompting.template,
        parts.policy.tokenizer,
        max_trace_length=settings.max_trace_length,
        on_cut=settings.cut_traces,
        recorded_probabilities=objective.use_teacher_probs,
    )
    log(encoded.describe())
    if not encoded.by_problem:
        raise DataError(
            f"the objective wants teacher rows, but {where} has no usable trace for any of "
            f"{len(prompts):,} prompts",
            hint="set off_policy.traces to demonstrations of the same questions, or "
            "objective.preset=on_policy",
        )
    for line in preflight(
        prompts,
        encoded.by_problem,
        template=parts.prompting.template,
        model_config=parts.policy.model.config,
        eos_token_ids=parts.policy.eos_token_ids,
        max_tokens=sampling.max_tokens,
        grade=lambda groups: grade_groups(groups, parts.reward),
        is_right=answer_right,
        expected_ending=settings.prompt_ending,
        min_right=settings.min_right,
        seed=config.seed,
    ):
        log(line)
    tokenizer = parts.policy.tokenizer
    return Guidance(
        traces=encoded.by_problem,
        decode=lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=True)),
    )


def build_replay(config: GRPOConfig, parts: Parts, prompts: Sequence[Prompt]) -> Replay | None:
    """The buffer of past successes, empty at first; None where the objective does not replay."""
    if not config.objective.resolve().replay:
        return None
    settings = config.replay
    score = None
    if settings.select != "random":
        score = replay_scorer(
            parts.policy.model,
            settings.select,
            temperature=config.sampling.temperature,
            max_tokens=config.batch.settled_tokens,
            autocast=parts.policy.autocast,
            pad_id=parts.policy.pad_id,
        )
    return Replay(
        buffer=ReplayBuffer(
            num_generations=config.num_generations,
            lower=settings.lower,
            upper=settings.upper,
            weighting=settings.weighting,
            sigma=settings.sigma,
            max_age=settings.max_age,
            max_rollouts=settings.max_rollouts,
        ),
        prompts={prompt.problem.id: prompt for prompt in prompts},
        score=score,
    )
