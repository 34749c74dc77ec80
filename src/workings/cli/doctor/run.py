"""Whether a run will work here: its files, template, rows, lengths, rewards, memory and engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from workings.cli.build import (
    Prompting,
    build_grader,
    build_policy,
    build_prompting,
    build_run_reward,
    build_sampling,
    build_tokenizer,
)
from workings.cli.doctor.engine import engine_findings, loss_finding
from workings.cli.doctor.findings import Finding, absent, fail, guarded, ok, warn
from workings.cli.doctor.memory import memory_finding, sampling_memory, training_memory
from workings.cli.doctor.model_files import ModelFiles, read_model_files, text_config
from workings.cli.doctor.prompts import (
    length_finding,
    position_finding,
    preview_finding,
    prompt_findings,
    row_length_finding,
)
from workings.cli.doctor.rewards import reward_findings
from workings.cli.doctor.rows import FirstRows, Phase, first_rows
from workings.cli.doctor.special import special_token_findings
from workings.cli.engines import build_engine
from workings.cli.folders import CONFIG, run_folder
from workings.cli.sampling_text import describe_sampling
from workings.config.dpo import DPOConfig
from workings.config.evaluation import EvalConfig
from workings.config.expert_iteration import ExpertIterationConfig
from workings.config.grpo import GRPOConfig
from workings.config.kinds import AnyRun, SamplingRun, TrainingRun
from workings.config.pipeline import PipelineConfig
from workings.config.sample import SampleConfig
from workings.config.sections import SamplingConfig
from workings.config.serve import ServeConfig
from workings.config.sft import SFTConfig
from workings.data.encoding import EncodedDemonstration, encode_demonstrations
from workings.data.lengths import length_percentile
from workings.errors import ConfigError, WorkingsError
from workings.models.placement import choose_device
from workings.rollout.engine import SamplingParams
from workings.rollout.select import rows_at_once
from workings.seeds import derive_seed
from workings.types import Prompt

CHECKED_ROWS, LOSS_ROWS = 64, 4


def phases_of(config: AnyRun | None) -> dict[str, Phase]:
    """The runs inside a configuration, by a heading; a pipeline has two."""
    if config is None:
        return {}
    if isinstance(config, PipelineConfig):
        return {
            f"SFT run {config.sft.name}": config.sft,
            f"GRPO run {config.grpo.name}": config.grpo,
        }
    if isinstance(config, SampleConfig):
        return {"sample": config}
    if isinstance(config, ServeConfig):
        raise ConfigError(
            "a configuration of kind 'serve' has no prompts to check",
            hint="give the doctor the configuration of the run that trains",
        )
    return {f"{config.kind} run {config.name}": config}


def run_findings(phase: Phase) -> Iterator[Finding]:
    """Everything about one run; what depends on something that failed is left out."""
    yield from _settings(phase)
    try:
        files = read_model_files(phase.model)
        prompting = _prompting(phase)
    except WorkingsError as error:
        yield fail("model, template", error.message, error.hint)
        yield absent("the rest", "is not looked at without model, tokenizer and template")
        return
    sampling = [build_sampling(one, prompting.template) for one in _sampling_sections(phase)]
    if not sampling:
        pairs = isinstance(phase, DPOConfig)
        reason = (
            "pairs are scored" if pairs else "there are no validation rows to sample answers to"
        )
        yield absent("sampling", f"none: {reason}")
    yield _model(files)
    yield _template(prompting)
    yield from guarded(
        "special tokens",
        lambda: special_token_findings(files, prompting.tokenizer, prompting.template),
    )
    for one in dict.fromkeys(map(describe_sampling, sampling)):
        yield ok("sampling", one.removeprefix("sampling: "))
    try:
        rows = first_rows(phase)
        encoded = _encode(prompting, rows, phase)
    except WorkingsError as error:
        yield fail("data", error.message, error.hint)
        yield absent("the rest", "is not looked at without rows")
        return
    yield from rows.findings
    subject = _Subject(
        phase=phase,
        files=files,
        prompting=prompting,
        sampling=tuple(sampling),
        rows=rows,
        encoded=encoded,
    )
    yield from guarded("prompts", lambda: _about_prompts(subject))
    yield from guarded("reward", lambda: _about_reward(subject))
    memory = guarded("memory of the run", lambda: [_memory(subject)])
    yield from memory
    if any(finding.status == "FAIL" for finding in memory):
        yield absent("engine, trainer", "not tried, because the model would not fit")
    else:
        yield from guarded("engine, trainer", lambda: _about_engine(subject))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """A run whose model files, template and rows could be read."""

    phase: Phase
    files: ModelFiles
    prompting: Prompting
    sampling: tuple[SamplingParams, ...]
    rows: FirstRows
    encoded: tuple[EncodedDemonstration, ...]

    @property
    def prompts(self) -> list[Prompt]:
        """Of every row."""
        return [row.prompt for row in self.encoded]

    @property
    def prompt_limit(self) -> int | None:
        """The limit on prompts in tokens that the run sets, directly or by a percentile."""
        if self.prompting.percentile is None:
            return self.prompting.max_length
        lengths = [len(prompt.ids) for prompt in self.prompts]
        return length_percentile(lengths, self.prompting.percentile)

    @property
    def longest_prompt(self) -> int:
        """Of those that the run keeps, in tokens; the limit, where longer ones are shortened."""
        limit = self.prompt_limit
        lengths = [len(prompt.ids) for prompt in self.prompts]
        if limit is None or max(lengths) <= limit:
            return max(lengths)
        if self.prompting.overlong == "truncate":
            return limit
        return max((n for n in lengths if n <= limit), default=max(lengths))


# ----------------------------------------------------------------------------- what is set


def _settings(phase: Phase) -> Iterator[Finding]:
    if isinstance(phase, SampleConfig):
        return
    folder = run_folder(phase)
    if (folder / CONFIG).is_file():
        yield warn(
            "folder", f"{folder} exists", "--resume goes on with it; name=... is another run"
        )
    else:
        yield ok("folder", f"{folder} is new")
    if isinstance(phase, GRPOConfig):
        yield ok("objective", phase.objective.resolve().describe().removeprefix("objective "))
        yield ok(
            "batch",
            f"{phase.prompts_per_step} prompts x {phase.num_generations} samples = "
            f"{phase.rollout_batch_size} rows a step, {phase.updates_per_rollout} update(s) of "
            f"{phase.rows_per_update} rows on them, {phase.max_steps} steps",
        )
    if isinstance(phase, DPOConfig):
        terms = " + ".join(f"{weight:g} {name}" for name, weight in phase.terms.items())
        yield ok("objective", f"{terms}, beta {phase.beta:g}, {phase.reference} reference")
        yield ok("batch", f"{phase.batch_size} pairs a step, {2 * phase.batch_size} responses")
    if isinstance(phase, ExpertIterationConfig):
        yield ok("objective", f"the SFT loss {phase.loss} on samples above {phase.keep_above:g}")
        yield ok(
            "batch",
            f"{phase.iterations} rounds of {phase.questions_per_iteration} questions x "
            f"{phase.num_generations} samples; what is kept is trained {phase.epochs} time(s) in "
            f"batches of {phase.batch_size}",
        )


def _prompting(phase: Phase) -> Prompting:
    tokenizer = build_tokenizer(phase.model)
    section = phase if isinstance(phase, EvalConfig | SampleConfig) else phase.data
    if isinstance(section, SampleConfig):
        return build_prompting(section.template, tokenizer, system_prompt=section.system_prompt)
    held_out = section.held_out if isinstance(section, EvalConfig) else section
    return build_prompting(
        section.template,
        tokenizer,
        system_prompt=section.system_prompt,
        max_length=section.max_prompt_length,
        percentile=held_out.prompt_length_percentile if held_out else None,
        overlong=section.overlong,
    )


def _sampling_sections(phase: Phase) -> list[SamplingConfig]:
    """How the run samples: for training first, then for its evaluation; SFT may do neither."""
    if isinstance(phase, DPOConfig):
        return []
    if isinstance(phase, EvalConfig | SampleConfig):
        return [phase.sampling]
    evaluates = phase.data.validation is not None or phase.data.validation_fraction > 0
    return [
        *([phase.sampling] if isinstance(phase, SamplingRun) else []),
        *([phase.evaluation.sampling] if evaluates else []),
    ]


def _model(files: ModelFiles) -> Finding:
    return ok(
        "model",
        f"{files.name}: {type(files.config).__name__.removesuffix('Config')}, "
        f"{files.num_parameters / 1e6:,.1f}M parameters, read from {files.location}",
    )


def _template(prompting: Prompting) -> Finding:
    template = prompting.template
    kind = "a chat template writes the prompt" if template.mode == "chat" else "plain text"
    return ok("template", f"{template.name} ({kind})")


# ------------------------------------------------------------------------ what comes of it


def _encode(
    prompting: Prompting, rows: FirstRows, phase: Phase
) -> tuple[EncodedDemonstration, ...]:
    return encode_demonstrations(
        rows.demonstrations,
        prompting.template,
        prompting.tokenizer,
        system_prompt=prompting.system_prompt,
        find_assistant_turns=getattr(phase, "trained_tokens", "") == "assistant",
    ).items


def _about_prompts(subject: _Subject) -> Iterator[Finding]:
    phase, prompting = subject.phase, subject.prompting
    yield from prompt_findings(prompting, subject.rows.demonstrations[:CHECKED_ROWS])
    first = subject.encoded[0]
    if isinstance(phase, SFTConfig | DPOConfig):
        trained = phase.trained_tokens if isinstance(phase, SFTConfig) else "completion"
        yield preview_finding(prompting.tokenizer, first, first.trained_mask(trained))
    else:
        yield preview_finding(prompting.tokenizer, first.prompt, ())
    positions = getattr(text_config(subject.files), "max_position_embeddings", None)
    yield length_finding(
        subject.prompts,
        limit=subject.prompt_limit,
        overlong=prompting.overlong,
    )
    if subject.sampling:
        yield position_finding(
            subject.longest_prompt,
            max(one.max_tokens for one in subject.sampling),
            positions,
        )
    if isinstance(phase, SFTConfig | DPOConfig):
        yield row_length_finding(
            subject.encoded,
            prompt_limit=subject.prompt_limit,
            response_limit=phase.data.max_response_length,
            overlong=phase.data.overlong,
            max_positions=positions,
        )


def _about_reward(subject: _Subject) -> Iterator[Finding]:
    phase = subject.phase
    if isinstance(phase, SampleConfig | DPOConfig) or not subject.sampling:
        return
    answered = {problem.id for problem in subject.rows.problems}
    prompts = [prompt for prompt in subject.prompts if prompt.problem.id in answered]
    if not prompts:
        yield absent("reward", "the rows have no gold answers, so nothing can be graded")
        return
    with build_grader(phase.grader) as grader:
        reward = build_run_reward(
            phase.reward,
            grader,
            eos_token=subject.prompting.tokenizer.eos_token,
            max_tokens=subject.sampling[0].max_tokens,
        )
        yield from reward_findings(phase.reward, reward, prompts, stop=subject.sampling[0].stop)


def _memory(subject: _Subject) -> Finding:
    phase, files = subject.phase, subject.files
    if isinstance(phase, TrainingRun | DPOConfig):
        longest = max(len(row.ids) for row in subject.encoded)
        if isinstance(phase, SamplingRun):
            longest = subject.longest_prompt + subject.sampling[0].max_tokens
        found = training_memory(
            files, phase, longest_prompt=subject.longest_prompt, longest_row=longest
        )
        return memory_finding(
            found.estimate,
            device=phase.model.device,
            trained=found.trained,
            choice=found.choice,
        )
    device = choose_device(phase.model.device).device.type
    most = rows_at_once(phase.engine.max_batch_size, phase.engine.name, device)
    num_samples = phase.most_samples if isinstance(phase, EvalConfig) else phase.num_samples
    rows = min(most, num_samples * len(subject.prompts))
    estimate = sampling_memory(
        files, cached_tokens=rows * (subject.longest_prompt + subject.sampling[0].max_tokens)
    )
    return memory_finding(estimate, device=phase.model.device, trained=0)


def _about_engine(subject: _Subject) -> Iterator[Finding]:
    phase = subject.phase
    policy = build_policy(phase.model, seed=phase.seed, trainable=False)
    if subject.sampling and not isinstance(phase, DPOConfig):
        engine, engine_line = build_engine(phase.engine, policy)
        yield ok("engine", engine_line.removeprefix("engine: "))
        fitting = [p for p in subject.prompts if len(p.ids) <= subject.longest_prompt]
        prompts = fitting or subject.prompts
        seed = derive_seed(phase.seed, "doctor")
        with closing(engine):
            yield from engine_findings(policy, engine, subject.sampling[0], prompts, seed=seed)
    if isinstance(phase, SFTConfig | DPOConfig):
        yield loss_finding(policy, subject.encoded[:LOSS_ROWS])
