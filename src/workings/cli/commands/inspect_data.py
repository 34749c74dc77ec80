"""`workings inspect data`: rows token by token, with the loss mask, and the faults they have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from workings.cli.build import (
    Prompting,
    build_grader,
    build_prompting,
    build_tokenizer,
    demonstrations_at,
    problems_at,
    split_demonstrations,
    split_problems,
    training_prompting,
)
from workings.cli.colour import paint
from workings.cli.console import write_data, write_error
from workings.cli.data_faults import Item, data_findings
from workings.cli.doctor.findings import Finding, fail, format_finding
from workings.cli.doctor.rows import as_problem
from workings.cli.preference_runs import encoded_pairs, preferences_at, split_pairs
from workings.cli.token_text import end_tokens, stop_lines, stop_tokens, token_lines
from workings.config.dpo import DPOConfig
from workings.config.evaluation import EvalConfig
from workings.config.kinds import AnyRun, SamplingRun, TrainingRun
from workings.config.pipeline import PipelineConfig
from workings.config.sample import SampleConfig
from workings.config.sections import DatasetConfig
from workings.config.serve import ServeConfig
from workings.config.sft import SFTConfig
from workings.data.inspection import TokenView, view_prompt, view_tokens
from workings.data.lengths import length_percentile
from workings.errors import ConfigError, DataError, TemplateError, WorkingsError
from workings.types import Demonstration, PreferencePair, Problem

Say = Callable[[str], None]


def run(config: AnyRun, *, limit: int, only_prompts: bool = False) -> int:
    """Print how the data was read, lengths, the first `limit` rows, and what was checked.

    1 where the rows or the template have a fault, every one of which is named; else 0.
    """
    if isinstance(config, SampleConfig | ServeConfig):
        raise ConfigError(f"a configuration of kind {config.kind!r} has no data set to inspect")
    findings: list[Finding] = []
    if isinstance(config, PipelineConfig):
        for name, phase in (("SFT", config.sft), ("GRPO", config.grpo)):
            write_data(paint(f"== {name} ==", "bold"))
            findings += _inspect(phase, limit, only_prompts=only_prompts)
    else:
        findings = _inspect(config, limit, only_prompts=only_prompts)
    faults = [finding for finding in findings if finding.status == "FAIL"]
    if faults:
        names = ", ".join(dict.fromkeys(finding.what for finding in faults))
        write_error(f"{len(faults)} fault{'s' if len(faults) > 1 else ''} in the data: {names}")
    return 1 if faults else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """A data set of a run, and how it becomes tokens."""

    config: TrainingRun | DPOConfig | EvalConfig
    prompting: Prompting
    stop: tuple[str, ...]
    limit: int
    only_prompts: bool


def _inspect(
    config: TrainingRun | DPOConfig | EvalConfig, limit: int, *, only_prompts: bool
) -> list[Finding]:
    """What was found on checking the rows, after they were shown."""
    tokenizer = build_tokenizer(config.model)
    prompting = (
        _evaluation_prompting(config, tokenizer)
        if isinstance(config, EvalConfig)
        else training_prompting(config.data, tokenizer)
    )
    write_data(describe_template(prompting))
    stop = tuple(dict.fromkeys([*prompting.template.stop, *_sampling_stops(config)]))
    if set(stop) != set(prompting.template.stop):
        write_data(f"stop strings of the run: {', '.join(map(repr, stop))}")
    subject = _Subject(
        config=config, prompting=prompting, stop=stop, limit=limit, only_prompts=only_prompts
    )
    findings: list[Finding] = []
    for items in _row_sets(config):
        findings += _show_and_check(subject, items)
    return findings


def _row_sets(config: TrainingRun | DPOConfig | EvalConfig) -> Iterator[Sequence[Item]]:
    """The rows of every data set, read one after another."""
    if isinstance(config, EvalConfig):
        for dataset in config.datasets:
            yield _problems(config, dataset, write_data)
    elif isinstance(config, SamplingRun):
        problems = _problems(config, config.data.train, write_data)
        train, held_out = split_problems(config.data, problems, seed=config.seed)
        _say_split(train, held_out, write_data)
        yield train
    elif isinstance(config, DPOConfig):
        rows = preferences_at(config.data.train, seed=config.seed, log=write_data).items
        pairs, pairs_held_out = split_pairs(config, rows)
        _say_split(pairs, pairs_held_out, write_data)
        yield pairs
    else:
        found = demonstrations_at(config.data.train, seed=config.seed, log=write_data).items
        demonstrations, problems_held_out = split_demonstrations(
            config.data, found, seed=config.seed
        )
        _say_split(demonstrations, problems_held_out, write_data)
        yield demonstrations


def _show_and_check(subject: _Subject, items: Sequence[Item]) -> list[Finding]:
    """Rows that cannot be shown are checked all the same, so that every fault is named."""
    failure: WorkingsError | None = None
    try:
        _show(subject, items)
    except (TemplateError, DataError) as error:
        failure = error
    if not items:
        return [fail("rows", failure.message, failure.hint)] if failure else []
    config = subject.config
    is_sampled = isinstance(config, EvalConfig | SamplingRun)
    findings = data_findings(
        subject.prompting,
        items,
        max_response_length=None if is_sampled else config.data.max_response_length,  # type: ignore[union-attr]
        stop=() if is_sampled else subject.stop,
    )
    if failure is not None and not any(finding.status == "FAIL" for finding in findings):
        findings.append(fail("rows", failure.message, failure.hint))
    write_data("")
    for finding in findings:
        write_data(format_finding(finding))
    return findings


def _show(subject: _Subject, items: Sequence[Any]) -> None:
    config, prompting, limit = subject.config, subject.prompting, subject.limit
    if subject.only_prompts or isinstance(config, EvalConfig | SamplingRun):
        _show_prompts(subject, items)
        if isinstance(config, SamplingRun):
            write_data("Nothing of a prompt is trained; the tokens that are sampled after it are.")
    elif isinstance(config, DPOConfig):
        _show_pairs(config, prompting, items, limit)
    else:
        _show_demonstrations(subject, items)


def _sampling_stops(config: TrainingRun | DPOConfig | EvalConfig) -> Sequence[str]:
    """The stop strings that the run itself adds to those of its template."""
    section = config if isinstance(config, EvalConfig | SamplingRun) else config.evaluation
    sampling = getattr(section, "sampling", None)
    return () if sampling is None else sampling.stop


def describe_template(prompting: Prompting) -> str:
    """The template's name and kind, its stop strings and the system prompt."""
    template = prompting.template
    kind = "a chat template writes the prompt" if template.mode == "chat" else "plain text"
    stop = ", ".join(map(repr, template.stop)) or "none, EOS alone ends a response"
    lines = [f"template: {template.name} ({kind})", f"its stop strings: {stop}"]
    system = prompting.system_prompt if prompting.system_prompt is not None else template.system
    if system:
        lines.append(f"system prompt: {system!r}")
    return "\n".join(lines)


def describe_lengths(what: str, lengths: Sequence[int]) -> str:
    """One line of statistics.

    >>> describe_lengths("prompt", [10, 12, 20])
    'prompt tokens: median 12, 90 % at most 18, shortest 10, longest 20'
    """
    return (
        f"{what} tokens: median {median(lengths):g}, 90 % at most "
        f"{length_percentile(lengths, 90)}, shortest {min(lengths)}, longest {max(lengths)}"
    )


def _evaluation_prompting(config: EvalConfig, tokenizer: object) -> Prompting:
    return build_prompting(
        config.template,
        tokenizer,
        system_prompt=config.system_prompt,
        max_length=config.max_prompt_length,
        overlong=config.overlong,
    )


def _problems(
    config: SamplingRun | EvalConfig, dataset: DatasetConfig, say: Say
) -> Sequence[Problem]:
    bad_gold = config.bad_gold if isinstance(config, EvalConfig) else config.data.bad_gold
    with build_grader(config.grader) as grader:
        return problems_at(
            dataset, seed=config.seed, grader=grader, bad_gold=bad_gold, log=say
        ).items


def _say_split(train: Sequence[object], held_out: Sequence[object], say: Say) -> None:
    if held_out:
        say(f"split: {len(train):,} rows to train on, {len(held_out):,} held out for validation")


# ------------------------------------------------------------------------------------- rows


def _show_prompts(subject: _Subject, items: Sequence[Any]) -> None:
    prompting, say = subject.prompting, write_data
    rows = [as_problem(item) if isinstance(item, Demonstration) else item for item in items]
    prompts = prompting.prompts(rows, say, what="prompts")
    say(describe_lengths("prompt", [len(prompt.ids) for prompt in prompts]))
    for number, prompt in enumerate(prompts[: subject.limit], start=1):
        heading = f"row {number}: {prompt.problem.id}, {len(prompt.ids)} tokens"
        details = [f"gold answer: {prompt.problem.answer!r}"]
        views = view_prompt(prompt, prompting.tokenizer)
        say(_block(heading, details, views, subject.stop))


def _show_demonstrations(subject: _Subject, items: Sequence[Demonstration]) -> None:
    config, prompting, say = subject.config, subject.prompting, write_data
    assert isinstance(config, SFTConfig)
    encoded = prompting.demonstrations(
        items,
        say,
        max_response_length=config.data.max_response_length,
        trained_tokens=config.trained_tokens,
    )
    say(describe_lengths("prompt", [len(row.prompt.ids) for row in encoded]))
    say(describe_lengths("response", [len(row.response_ids) for row in encoded]))
    num_trained = sum(sum(row.trained_mask(config.trained_tokens)) for row in encoded)
    num_tokens = sum(len(row.ids) for row in encoded)
    say(f"trained: {num_trained:,} of {num_tokens:,} tokens ({num_trained / num_tokens:.0%})")
    for number, row in enumerate(encoded[: subject.limit], start=1):
        mask = row.trained_mask(config.trained_tokens)
        heading = (
            f"row {number}: {row.demonstration.id}, {len(row.prompt.ids)} prompt and "
            f"{len(row.response_ids)} response tokens, {sum(mask)} trained"
        )
        details = [f"gold answer: {row.demonstration.answer!r}"]
        if row.truncated:
            details.append("the response is cut at the limit, so it has no EOS")
        views = view_tokens(row.ids, mask, prompting.tokenizer)
        say(_block(heading, details, views, subject.stop))


def _show_pairs(
    config: DPOConfig, prompting: Prompting, items: Sequence[PreferencePair], limit: int
) -> None:
    say = write_data
    pairs = encoded_pairs(config, prompting, items, say, what="pairs")
    say(describe_lengths("prompt", [len(pair.chosen.prompt.ids) for pair in pairs]))
    say(describe_lengths("chosen", [len(pair.chosen.response_ids) for pair in pairs]))
    say(describe_lengths("rejected", [len(pair.rejected.response_ids) for pair in pairs]))
    for number, pair in enumerate(pairs[:limit], start=1):
        for side, row in (("chosen", pair.chosen), ("rejected", pair.rejected)):
            heading = (
                f"row {number}, {side}: {pair.pair.id}, {len(row.prompt.ids)} prompt and "
                f"{len(row.response_ids)} response tokens"
            )
            details = ["the response is cut at the limit, so it has no EOS"] * row.truncated
            say(_block(heading, details, view_tokens(row.ids, row.mask, prompting.tokenizer)))


def _block(
    heading: str,
    details: Sequence[str],
    views: Sequence[TokenView],
    stop: Sequence[str] = (),
) -> str:
    stops = stop_lines(views, stop)
    lines = token_lines(views, marked=stop_tokens(views, stop))
    return "\n".join(["", paint(heading, "bold"), *details, end_tokens(views), *stops, *lines])
