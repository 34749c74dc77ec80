"""`workings inspect data`: rows as the model sees them, token by token, with the loss mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

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
from workings.cli.console import write_data
from workings.cli.preference_runs import encoded_pairs, preferences_at, split_pairs
from workings.cli.token_text import end_tokens, token_lines
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
from workings.errors import ConfigError
from workings.types import Problem

Say = Callable[[str], None]


def run(config: AnyRun, *, limit: int) -> int:
    """Print how the data was read, lengths, and the first `limit` rows."""
    if isinstance(config, SampleConfig | ServeConfig):
        raise ConfigError(f"a configuration of kind {config.kind!r} has no data set to inspect")
    if isinstance(config, PipelineConfig):
        for name, phase in (("SFT", config.sft), ("GRPO", config.grpo)):
            write_data(paint(f"== {name} ==", "bold"))
            _inspect(phase, limit, write_data)
    else:
        _inspect(config, limit, write_data)
    return 0


def _inspect(config: TrainingRun | DPOConfig | EvalConfig, limit: int, say: Say) -> None:
    tokenizer = build_tokenizer(config.model)
    if isinstance(config, EvalConfig):
        prompting = _evaluation_prompting(config, tokenizer)
        say(describe_template(prompting))
        for dataset in config.datasets:
            _show_prompts(prompting, _problems(config, dataset, say), limit, say)
        return
    prompting = training_prompting(config.data, tokenizer)
    say(describe_template(prompting))
    if isinstance(config, SamplingRun):
        problems = _problems(config, config.data.train, say)
        train, held_out = split_problems(config.data, problems, seed=config.seed)
        _say_split(train, held_out, say)
        _show_prompts(prompting, train, limit, say)
        say("Nothing of a prompt is trained; the tokens that are sampled after it are.")
    elif isinstance(config, DPOConfig):
        _show_pairs(config, prompting, limit, say)
    else:
        _show_demonstrations(config, prompting, limit, say)


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


def _show_prompts(prompting: Prompting, problems: Sequence[Problem], limit: int, say: Say) -> None:
    prompts = prompting.prompts(problems, say, what="prompts")
    say(describe_lengths("prompt", [len(prompt.ids) for prompt in prompts]))
    for number, prompt in enumerate(prompts[:limit], start=1):
        heading = f"row {number}: {prompt.problem.id}, {len(prompt.ids)} tokens"
        details = [f"gold answer: {prompt.problem.answer!r}"]
        say(_block(heading, details, view_prompt(prompt, prompting.tokenizer)))


def _show_demonstrations(config: SFTConfig, prompting: Prompting, limit: int, say: Say) -> None:
    rows = demonstrations_at(config.data.train, seed=config.seed, log=say).items
    train, held_out = split_demonstrations(config.data, rows, seed=config.seed)
    _say_split(train, held_out, say)
    encoded = prompting.demonstrations(
        train,
        say,
        max_response_length=config.data.max_response_length,
        trained_tokens=config.trained_tokens,
    )
    say(describe_lengths("prompt", [len(row.prompt.ids) for row in encoded]))
    say(describe_lengths("response", [len(row.response_ids) for row in encoded]))
    num_trained = sum(sum(row.trained_mask(config.trained_tokens)) for row in encoded)
    num_tokens = sum(len(row.ids) for row in encoded)
    say(f"trained: {num_trained:,} of {num_tokens:,} tokens ({num_trained / num_tokens:.0%})")
    for number, row in enumerate(encoded[:limit], start=1):
        mask = row.trained_mask(config.trained_tokens)
        heading = (
            f"row {number}: {row.demonstration.id}, {len(row.prompt.ids)} prompt and "
            f"{len(row.response_ids)} response tokens, {sum(mask)} trained"
        )
        details = [f"gold answer: {row.demonstration.answer!r}"]
        if row.truncated:
            details.append("the response is cut at the limit, so it has no EOS")
        say(_block(heading, details, view_tokens(row.ids, mask, prompting.tokenizer)))


def _show_pairs(config: DPOConfig, prompting: Prompting, limit: int, say: Say) -> None:
    rows = preferences_at(config.data.train, seed=config.seed, log=say).items
    train, held_out = split_pairs(config, rows)
    _say_split(train, held_out, say)
    pairs = encoded_pairs(config, prompting, train, say, what="pairs")
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


def _block(heading: str, details: Sequence[str], views: Sequence[TokenView]) -> str:
    return "\n".join(["", paint(heading, "bold"), *details, end_tokens(views), *token_lines(views)])
