"""Prompts and responses of the first rows: one set of ids, EOS learnt, lengths that fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from workings.cli.build import Prompting
from workings.cli.doctor.findings import Finding, fail, ok, warn
from workings.cli.doctor.rows import as_problem
from workings.cli.token_text import end_tokens, token_lines
from workings.data.encoding import EncodedDemonstration, encode_demonstrations, encode_prompts
from workings.data.inspection import view_prompt, view_tokens
from workings.data.lengths import length_percentile
from workings.data.special_tokens import special_tokens
from workings.training.packing import TrainRow, pack
from workings.types import Demonstration, Prompt

SHOWN_TOKENS, LAST_TOKENS = 160, 40


def prompt_findings(prompting: Prompting, rows: Sequence[Demonstration]) -> Iterator[Finding]:
    """Whether SFT and rollouts give one prompt the same ids, BOS stands once, and EOS is learnt."""
    encoded = encode_demonstrations(
        rows, prompting.template, prompting.tokenizer, system_prompt=prompting.system_prompt
    )
    prompts = encode_prompts(
        [as_problem(row) for row in rows],
        prompting.template,
        prompting.tokenizer,
        system_prompt=prompting.system_prompt,
    )
    yield _same_ids(encoded.items, prompts.items)
    yield _automatic_bos(prompting, prompts.items)
    yield _eos_learnt(encoded.items, prompting.tokenizer)
    yield _trained_span(encoded.items, prompting)
    if prompts.num_with_special_text:
        yield ok(
            "control tokens",
            f"{prompts.num_with_special_text} of {len(rows)} questions spell one; it is read as "
            "plain text",
        )


def preview_finding(
    tokenizer: Any, row: EncodedDemonstration | Prompt, mask: Sequence[bool]
) -> Finding:
    """The first row token by token; carets stand below what is trained."""
    if isinstance(row, Prompt):
        views = view_prompt(row, tokenizer)
        text = f"{row.problem.id}: a prompt, of which nothing is trained"
    else:
        views = view_tokens(row.ids, mask, tokenizer)
        text = f"{row.demonstration.id}: {sum(mask)} of {len(row.ids)} tokens trained (^)"
    last = max(SHOWN_TOKENS, len(views) - LAST_TOKENS)
    lines = token_lines(views[:SHOWN_TOKENS])
    if last > SHOWN_TOKENS:
        lines.append(f"... {last - SHOWN_TOKENS} tokens ...")
    lines += token_lines(views[last:], first=last)
    return ok("first row", text, details=[end_tokens(views), *lines])


def length_finding(prompts: Sequence[Prompt], *, limit: int | None, overlong: str) -> Finding:
    """How long prompts are, and what the limit does to them."""
    lengths = [len(prompt.ids) for prompt in prompts]
    text = (
        f"median {length_percentile(lengths, 50)}, 90 % at most {length_percentile(lengths, 90)}, "
        f"longest {max(lengths)} tokens"
    )
    over = 0 if limit is None else sum(length > limit for length in lengths)
    if not over:
        shown = "no limit is set" if limit is None else f"all within the limit of {limit}"
        return ok("prompt lengths", f"{text}; {shown}")
    doing = {"drop": "left out", "truncate": "shortened", "error": "refused"}[overlong]
    text += f"; {over} of {len(lengths)} are over the limit of {limit} and {doing}"
    nothing_left = over == len(lengths) and overlong == "drop"
    report = fail if overlong == "error" or nothing_left else warn
    return report(
        "prompt lengths", text, "raise max_prompt_length, or set overlong=drop or truncate"
    )


def row_length_finding(
    rows: Sequence[EncodedDemonstration],
    *,
    prompt_limit: int | None,
    response_limit: int | None,
    overlong: str,
    max_positions: int | None,
) -> Finding:
    """How many demonstrations the limits touch, and whether the longest kept one fits."""
    kept = [
        row
        for row in rows
        if (prompt_limit is None or len(row.prompt.ids) <= prompt_limit)
        and (response_limit is None or len(row.response_ids) <= response_limit)
    ]
    over = len(rows) - len(kept)
    longest = max((len(row.ids) for row in kept), default=0)
    text = f"the longest row within the limits has {longest} tokens"
    if over:
        text += f"; {over} of {len(rows)} rows are over a limit (overlong={overlong})"
    if max_positions is not None and longest > max_positions:
        return fail(
            "row lengths",
            f"{text}, more than the model's {max_positions} positions",
            "lower data.max_prompt_length or data.max_response_length",
        )
    if over and (overlong == "error" or not kept):
        return fail("row lengths", text, "raise the limits, or set data.overlong=drop")
    if over:
        return warn("row lengths", text, "raise the limits to keep these rows whole")
    return ok("row lengths", text)


def position_finding(longest: int, max_tokens: int, max_positions: int | None) -> Finding:
    """Whether the longest prompt and the longest response fit into the model's positions."""
    needed = f"{longest} prompt + {max_tokens} response tokens"
    if max_positions is None:
        return ok("positions", f"{needed}; the model states no limit")
    if longest + max_tokens > max_positions:
        room = max_positions - longest
        return fail(
            "positions",
            f"{needed} are more than the model's {max_positions} positions",
            "lower max_prompt_length" + (f", or sampling.max_tokens to {room}" if room > 0 else ""),
        )
    return ok("positions", f"{needed} fit into the model's {max_positions}")


def _same_ids(encoded: Sequence[EncodedDemonstration], prompts: Sequence[Prompt]) -> Finding:
    for row, prompt in zip(encoded, prompts, strict=True):
        if row.prompt.ids != prompt.ids or row.ids[: len(prompt.ids)] != prompt.ids:
            return fail(
                "prompt ids",
                f"{prompt.problem.id}: SFT and rollouts encode the prompt differently",
                "please report this row",
            )
    return ok("prompt ids", f"the same in SFT, rollouts and evaluation ({len(prompts)} rows)")


def _automatic_bos(prompting: Prompting, prompts: Sequence[Prompt]) -> Finding:
    prefix = special_tokens(prompting.tokenizer).automatic_prefix
    doubled = [p for p in prompts if prefix and p.ids[: 2 * len(prefix)] == 2 * prefix]
    if doubled:
        return fail(
            "BOS",
            f"{doubled[0].problem.id} begins with two BOS tokens",
            "take BOS out of the template, or stop the tokenizer from adding it",
        )
    if not prefix:
        return ok("BOS", "the tokenizer adds none by itself")
    has_one = all(p.ids[: len(prefix)] == prefix for p in prompts)
    if has_one:
        return ok("BOS", "stands once, at the beginning of every prompt")
    return ok("BOS", "the chat template writes the prompt, so the automatic BOS stays away")


def _eos_learnt(encoded: Sequence[EncodedDemonstration], tokenizer: Any) -> Finding:
    """Whether EOS is a trained target in what the trainer makes of the rows."""
    for row in encoded:
        batch = pack(
            [
                TrainRow(
                    key=0,
                    group=0,
                    prompt_ids=row.prompt.ids,
                    response_ids=row.response_ids,
                    mask=[True] * len(row.response_ids),
                )
            ],
            layout="padded",
            max_tokens=1,
            pad_id=tokenizer.pad_token_id,
        )[0]
        last = batch.targets[batch.mask][-1].item()
        if last != tokenizer.eos_token_id:
            return fail(
                "EOS learnt",
                f"{row.demonstration.id}: the last trained token is "
                f"{tokenizer.convert_ids_to_tokens(last)}, not {tokenizer.eos_token}",
                "set eos_token in tokenizer_config.json",
            )
    return ok("EOS learnt", f"{tokenizer.eos_token} is the last trained token of every response")


def _trained_span(encoded: Sequence[EncodedDemonstration], prompting: Prompting) -> Finding:
    """Whether the trained ids spell the response and EOS, and nothing else."""
    tokenizer = prompting.tokenizer
    for row in encoded:
        spelt = tokenizer.decode(list(row.response_ids))
        response = row.demonstration.response.removesuffix(tokenizer.eos_token)
        if spelt == response + tokenizer.eos_token:
            continue
        opened = prompting.template.opens_thought(row.prompt.text)
        if opened and response.endswith(spelt.removesuffix(tokenizer.eos_token)):
            continue
        return warn(
            "trained span",
            f"{row.demonstration.id}: the trained ids spell {spelt[:60]!r}, the response is "
            f"{response[:60]!r}",
            "the tokenizer does not give back what it is given (it normalises text); check that "
            "the difference does not matter",
        )
    return ok("trained span", "spells the response and EOS, in every row")
