"""`workings sample`: one question, one model, n answers."""

from __future__ import annotations

from contextlib import closing

from workings.cli.build import (
    build_policy,
    build_sampling,
    build_template,
    set_threads,
)
from workings.cli.console import write_data, write_note
from workings.cli.engines import build_engine
from workings.cli.sampling_text import describe_sampling
from workings.cli.terminal_text import for_stdout
from workings.config.sample import SampleConfig
from workings.data.encoding import encode_prompt
from workings.rollout.collect import collect_groups
from workings.seeds import derive_seed
from workings.types import Problem, Rollout

BETWEEN = "\n---\n"
ENDINGS = {
    "eos": "ended by itself (EOS)",
    "stop": "ended at a stop string",
    "length": "cut at sampling.max_tokens",
}


def run(config: SampleConfig, *, question: str) -> int:
    """Print the answers to stdout, a line of dashes between them; what they are, to stderr.

    On a terminal an answer's control characters show as escapes; a file gets them as they are.
    """
    set_threads(config.num_threads)
    policy = build_policy(config.model, seed=config.seed, trainable=False)
    template, system_prompt = build_template(
        config.template, policy.tokenizer, system_prompt=config.system_prompt
    )
    engine, engine_line = build_engine(config.engine, policy)
    sampling = build_sampling(config.sampling, template)
    for line in (*policy.report, engine_line, describe_sampling(sampling)):
        write_note(line)
    prompt = encode_prompt(
        Problem(id="question", question=question, answer=""),
        template,
        policy.tokenizer,
        system_prompt=system_prompt,
    )
    write_note(
        f"template {template.name}: {len(prompt.ids)} prompt tokens, ending {prompt.text[-24:]!r}"
    )
    with closing(engine):
        (group,) = collect_groups(
            engine,
            [prompt],
            sampling,
            num_samples=config.num_samples,
            seed=derive_seed(config.seed, "sample"),
        )
    write_data(BETWEEN.join(for_stdout(rollout.text) for rollout in group.rollouts))
    for number, rollout in enumerate(group.rollouts, start=1):
        write_note(f"answer {number} of {config.num_samples}: {describe_ending(rollout)}")
    return 0


def describe_ending(rollout: Rollout) -> str:
    """How long a completion is and why it ended, in words."""
    return f"{len(rollout.ids)} tokens, {ENDINGS[rollout.finish_reason]}"
