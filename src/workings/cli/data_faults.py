"""What rows and template may get wrong before a run: EOS, BOS, the prompt's ids, lengths, packing.

These are the faults 2, 3, 4 and 20 of docs/reference/faults.md. `workings inspect` looks for all of
them and names every one it finds; `workings doctor` looks for some on its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from workings.cli.build import Prompting
from workings.cli.doctor.findings import Finding, fail, guarded, ok
from workings.cli.doctor.prompts import length_finding, prompt_findings, row_length_finding
from workings.cli.doctor.rows import as_demonstration
from workings.data.encoding import EncodedDemonstration, encode_demonstrations
from workings.data.lengths import length_percentile
from workings.training.packing import Layout, MicroBatch, TrainRow, pack
from workings.types import Demonstration, PreferencePair, Problem

CHECKED_ROWS = 256
"""Rows that are looked at one by one; lengths are looked at in all."""
PACKED_ROWS = 8

Item = Problem | Demonstration | PreferencePair


def data_findings(
    prompting: Prompting,
    items: Sequence[Item],
    *,
    max_response_length: int | None = None,
    max_positions: int | None = None,
    stop: Sequence[str] = (),
) -> list[Finding]:
    """Everything that was looked at in these rows, faults as failures.

    `stop` are the strings at which the run's sampling ends.
    """
    rows = [row for item in items for row in _demonstrations(item)]
    with_response = not isinstance(items[0], Problem)
    found = guarded("prompts", lambda: _strictly(prompt_findings(prompting, rows[:CHECKED_ROWS])))
    if any(finding.what == "prompts" for finding in found):
        return found  # not one row could be encoded, for the reason that is given
    encoded = encode_demonstrations(
        rows, prompting.template, prompting.tokenizer, system_prompt=prompting.system_prompt
    ).items
    if with_response:
        found += _responses(prompting, encoded, stop)
    else:
        found += _thought_of_prompts(prompting, encoded)
    found += guarded("packing", lambda: [_packing(prompting, encoded[:PACKED_ROWS])])
    lengths = [len(row.prompt.ids) for row in encoded]
    limit = prompting.max_length
    if prompting.percentile is not None:
        limit = length_percentile(lengths, prompting.percentile)
    found.append(
        length_finding([row.prompt for row in encoded], limit=limit, overlong=prompting.overlong)
    )
    if with_response:
        found.append(
            row_length_finding(
                encoded,
                prompt_limit=limit,
                response_limit=max_response_length,
                overlong=prompting.overlong,
                max_positions=max_positions,
            )
        )
    return found


def _strictly(findings: Iterator[Finding]) -> Iterator[Finding]:
    """A trained span that does not spell the response is a fault here, not a warning."""
    for finding in findings:
        if finding.status == "warn" and finding.what == "trained span":
            yield fail(finding.what, finding.text, finding.remedy)
        else:
            yield finding


def _demonstrations(item: Item) -> list[Demonstration]:
    if isinstance(item, Demonstration):
        return [item]
    if isinstance(item, Problem):
        return [as_demonstration(item)]
    return [
        Demonstration(
            id=f"{item.id} ({side})",
            question=item.question,
            response=response,
            messages=item.messages,
            source=item.source,
        )
        for side, response in (("chosen", item.chosen), ("rejected", item.rejected))
    ]


def _responses(
    prompting: Prompting, encoded: Sequence[EncodedDemonstration], stop: Sequence[str]
) -> list[Finding]:
    """EOS inside a response, stop strings before its end, and the thought opened once."""
    tokenizer, template = prompting.tokenizer, prompting.template
    eos = tokenizer.eos_token_id
    inside = [row for row in encoded if eos in row.response_ids[:-1]]
    found = []
    if inside:
        found.append(
            fail(
                "EOS inside",
                f"{len(inside)} of {len(encoded)} responses hold EOS before their end; the first "
                f"is {inside[0].demonstration.id}",
                "take it out of the rows: a model that learns it stops in the middle",
            )
        )
    cut = [
        (row, text)
        for row in encoded
        for text in stop
        if text in row.demonstration.response.rstrip().removesuffix(text)
    ]
    if cut:
        row, text = cut[0]
        found.append(
            fail(
                "stop strings",
                f"{len(cut)} of {len(encoded)} responses hold the stop string {text!r} before "
                f"their end, so sampling would end there; the first is {row.demonstration.id}",
                "take another stop string, or clean the rows",
            )
        )
    elif stop:
        found.append(ok("stop strings", f"{', '.join(map(repr, stop))}: nowhere before the end"))
    opening, closing = template.thought_tag, template.thought_tag.replace("<", "</", 1)
    twice, never = [], []
    for row in encoded:
        response = tokenizer.decode(list(row.response_ids))
        opened = template.opens_thought(row.prompt.text)
        if opened and opening in response:
            twice.append(row)
        elif not opened and closing in response and opening not in response:
            never.append(row)
    for rows, text in (
        (twice, f"open the thought a second time, after a prompt that ends with {opening}"),
        (never, "close a thought that neither they nor the prompt open"),
    ):
        if rows:
            found.append(
                fail(
                    "thought",
                    f"{len(rows)} of {len(encoded)} responses {text}; the first is "
                    f"{rows[0].demonstration.id}",
                    "take a template that fits the responses (data.template), or clean the rows",
                )
            )
    if not twice and not never:
        found.append(ok("thought", "opened at most once in prompt and response"))
    return [*found, *_thought_of_prompts(prompting, encoded)]


def _thought_of_prompts(
    prompting: Prompting, encoded: Sequence[EncodedDemonstration]
) -> list[Finding]:
    """Whether all prompts end alike: with the thought opened, or none of them."""
    opens = [prompting.template.opens_thought(row.prompt.text) for row in encoded]
    if len(set(opens)) < 2:
        return []
    odd = opens.index(not opens[0])
    return [
        fail(
            "prompt's end",
            f"{encoded[0].demonstration.id} ends with {encoded[0].prompt.text[-20:]!r}, "
            f"{encoded[odd].demonstration.id} with {encoded[odd].prompt.text[-20:]!r}",
            "take a template whose generation prompt does not depend on the row",
        )
    ]


def train_rows(encoded: Sequence[EncodedDemonstration]) -> list[TrainRow]:
    """Rows to train on, every token of a response scored."""
    return [
        TrainRow(
            key=number,
            group=number,
            prompt_ids=row.prompt.ids,
            response_ids=row.response_ids,
            mask=[True] * len(row.response_ids),
        )
        for number, row in enumerate(encoded)
    ]


def _packing(prompting: Prompting, encoded: Sequence[EncodedDemonstration]) -> Finding:
    """Whether padding to either side and packing give every row the same targets and positions."""
    rows = train_rows(encoded)
    pad_id = prompting.tokenizer.pad_token_id or 0
    budget = sum(len(row.prompt_ids) + len(row.response_ids) for row in rows) * len(rows)
    expected = sorted(
        (tuple(row.response_ids), _positions(len(row.prompt_ids), len(row.response_ids)))
        for row in rows
    )
    layouts: tuple[tuple[Layout, Literal["left", "right"]], ...] = (
        ("padded", "right"),
        ("padded", "left"),
        ("packed", "right"),
    )
    for layout, side in layouts:
        batches = pack(rows, layout=layout, max_tokens=budget, pad_id=pad_id, padding_side=side)
        if sorted(row for batch in batches for row in _trained(batch)) != expected:
            return fail(
                "packing",
                f"{layout}, {side}: other tokens or positions are trained than the rows have",
                "please report this data set",
            )
    return ok("packing", f"the same targets and positions padded and packed ({len(rows)} rows)")


def _positions(prompt_length: int, response_length: int) -> tuple[int, ...]:
    """Where the tokens stand that predict the response, counted from the row's beginning."""
    return tuple(range(prompt_length - 1, prompt_length + response_length - 1))


def _trained(batch: MicroBatch) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(targets, positions of what predicts them) of every row of a microbatch."""
    positions = batch.position_ids.flatten()
    for sources, targets, mask in zip(batch.sources, batch.targets, batch.mask, strict=True):
        yield tuple(targets[mask].tolist()), tuple(positions[sources[mask]].tolist())
