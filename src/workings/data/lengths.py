"""Length limits on prompts, demonstrations and pairs, with a count of all that they touch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Generic, Literal, NoReturn, TypeVar

from workings.data.encoding import EncodedDemonstration, EncodedPair
from workings.errors import DataError
from workings.types import Prompt

Row = TypeVar("Row")
Overlong = Literal["drop", "error", "truncate"]
Shorten = Callable[[Prompt, int], Prompt]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited(Generic[Row]):
    """The rows within a length limit, and what became of the others.

    Attributes:
        kept: the rows, in the order given.
        limit: the limit in tokens that was applied; None where there was none.
        num_dropped, num_truncated: rows left out, and rows cut.
        longest: the longest row before the limit was applied, in tokens.
    """

    kept: tuple[Row, ...]
    limit: int | None
    num_dropped: int = 0
    num_truncated: int = 0
    longest: int = 0


def limit_prompts(
    prompts: Sequence[Prompt],
    *,
    max_length: int | None = None,
    percentile: float | None = None,
    on_overlong: Overlong = "drop",
    shorten: Shorten | None = None,
) -> Limited[Prompt]:
    """The prompts of at most `max_length` tokens, or of at most the given percentile of lengths.

    Args:
        percentile: 0 to 100; see `length_percentile`.
        on_overlong: leave a longer prompt out, raise DataError, or shorten its question.
        shorten: `(prompt, limit) -> prompt`, needed to truncate (`shortening.shorten_prompt`): ids
            alone do not say which of them are the template, and that is never cut.
    """
    if max_length is not None and percentile is not None:
        raise DataError(
            f"max_length={max_length} and percentile={percentile:g} are both set; keep one of them"
        )
    if not prompts:
        raise DataError("there are no prompts to limit")
    lengths = [len(prompt.ids) for prompt in prompts]
    limit = max_length if percentile is None else length_percentile(lengths, percentile)
    if limit is None:
        return Limited(kept=tuple(prompts), limit=None, longest=max(lengths))
    over = [prompt for prompt in prompts if len(prompt.ids) > limit]
    if over and on_overlong == "error":
        first = over[0]
        _refuse(
            "prompt", first.problem.id, str(len(first.ids)), str(limit), len(over), len(prompts)
        )
    if on_overlong == "truncate":
        if shorten is None:
            raise DataError("on_overlong='truncate' needs shorten, which keeps the template whole")
        kept = tuple(p if len(p.ids) <= limit else shorten(p, limit) for p in prompts)
        return Limited(kept=kept, limit=limit, num_truncated=len(over), longest=max(lengths))
    kept = tuple(prompt for prompt in prompts if len(prompt.ids) <= limit)
    if not kept:
        raise DataError(
            f"none of {len(prompts)} prompts has at most {limit} tokens; "
            f"the shortest has {min(lengths)}",
            hint="raise the limit, or check that the template is the one you meant",
        )
    return Limited(kept=kept, limit=limit, num_dropped=len(over), longest=max(lengths))


def limit_demonstrations(
    rows: Sequence[EncodedDemonstration],
    *,
    max_prompt_length: int | None = None,
    max_response_length: int | None = None,
    max_length: int | None = None,
    on_overlong: Overlong = "drop",
) -> Limited[EncodedDemonstration]:
    """The demonstrations within limits on prompt, response and their sum, in tokens with EOS.

    With "truncate" the response is cut to what fits and loses its EOS; where the prompt leaves no
    room for a response, the row is dropped even then. `limit` of the result is `max_length`.
    """
    if not rows:
        raise DataError("there are no demonstrations to limit")
    longest = max(len(row.ids) for row in rows)
    kept: list[EncodedDemonstration] = []
    over: list[EncodedDemonstration] = []
    num_truncated = 0
    for row in rows:
        room = _response_room(row, max_prompt_length, max_response_length, max_length)
        if len(row.response_ids) <= room:
            kept.append(row)
        elif on_overlong == "truncate" and room > 0:
            kept.append(replace(row, response_ids=row.response_ids[: int(room)], truncated=True))
            num_truncated += 1
        else:
            over.append(row)
    limits = _shown_limits(max_prompt_length, max_response_length, max_length)
    if over and on_overlong == "error":
        first = over[0]
        lengths = f"{len(first.prompt.ids)} + {len(first.response_ids)}"
        _refuse("demonstration", first.demonstration.id, lengths, limits, len(over), len(rows))
    if not kept:
        raise DataError(
            f"none of {len(rows)} demonstrations is within the limit of {limits} tokens; the "
            f"shortest has {min(len(row.ids) for row in rows)}",
            hint="raise the limit, or check that the template is the one you meant",
        )
    return Limited(
        kept=tuple(kept),
        limit=max_length,
        num_dropped=len(over),
        num_truncated=num_truncated,
        longest=longest,
    )


def limit_pairs(
    pairs: Sequence[EncodedPair],
    *,
    max_prompt_length: int | None = None,
    percentile: float | None = None,
    max_response_length: int | None = None,
    on_overlong: Overlong = "drop",
) -> Limited[EncodedPair]:
    """The pairs whose prompt and whose two responses are within the limits, in tokens with EOS.

    A pair is kept or left out as a whole. With "truncate" each response is cut to the limit by
    itself, and the pair is counted once; a prompt is never cut. `percentile` (0 to 100) sets the
    limit on prompts from their lengths, see `length_percentile`. `limit` of the result is the
    limit on prompts.
    """
    if not pairs:
        raise DataError("there are no pairs to limit")
    if percentile is not None:
        prompts = [len(pair.chosen.prompt.ids) for pair in pairs]
        max_prompt_length = length_percentile(prompts, percentile)
    kept: list[EncodedPair] = []
    over: list[EncodedPair] = []
    num_truncated = 0
    for pair in pairs:
        room = _response_room(pair.chosen, max_prompt_length, max_response_length, None)
        if max(len(pair.chosen.response_ids), len(pair.rejected.response_ids)) <= room:
            kept.append(pair)
        elif on_overlong == "truncate" and room > 0:
            chosen, rejected = _cut(pair.chosen, int(room)), _cut(pair.rejected, int(room))
            kept.append(replace(pair, chosen=chosen, rejected=rejected))
            num_truncated += 1
        else:
            over.append(pair)
    limits = _shown_limits(max_prompt_length, max_response_length, None)
    if over and on_overlong == "error":
        _refuse("pair", over[0].pair.id, _shown_lengths(over[0]), limits, len(over), len(pairs))
    if not kept:
        raise DataError(
            f"none of {len(pairs)} pairs is within the limit of {limits} tokens; the first has "
            f"{_shown_lengths(pairs[0])}",
            hint="raise the limit, or check that the template is the one you meant",
        )
    return Limited(
        kept=tuple(kept),
        limit=max_prompt_length,
        num_dropped=len(over),
        num_truncated=num_truncated,
        longest=max(max(len(pair.chosen.ids), len(pair.rejected.ids)) for pair in pairs),
    )


def _cut(row: EncodedDemonstration, room: int) -> EncodedDemonstration:
    if len(row.response_ids) <= room:
        return row
    return replace(row, response_ids=row.response_ids[:room], truncated=True)


def _shown_lengths(pair: EncodedPair) -> str:
    responses = f"{len(pair.chosen.response_ids)} and {len(pair.rejected.response_ids)}"
    return f"{len(pair.chosen.prompt.ids)} + {responses}"


def length_percentile(lengths: Sequence[int], percentile: float) -> int:
    """The given percentile of the lengths: linear interpolation between ranks, rounded down.

    The same as `int(numpy.percentile(lengths, percentile))`, in exact arithmetic.

    >>> length_percentile([10, 20, 30, 40], 50), length_percentile([10, 20, 30, 40], 100)
    (25, 40)
    """
    if not lengths:
        raise DataError("there are no lengths to take a percentile of")
    if not 0 < percentile <= 100:
        raise DataError(f"percentile={percentile}; expected a value in (0, 100]")
    ordered = sorted(lengths)
    rank = Fraction(str(percentile)) * (len(ordered) - 1) / 100
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return int(ordered[below] + (rank - below) * (ordered[above] - ordered[below]))


def _response_room(
    row: EncodedDemonstration,
    max_prompt_length: int | None,
    max_response_length: int | None,
    max_length: int | None,
) -> float:
    """Tokens that the limits leave for the response; 0 or less where the prompt is too long."""
    num_prompt = len(row.prompt.ids)
    if max_prompt_length is not None and num_prompt > max_prompt_length:
        return 0
    room = math.inf if max_response_length is None else max_response_length
    return room if max_length is None else min(room, max_length - num_prompt)


def _shown_limits(prompt: int | None, response: int | None, both: int | None) -> str:
    named = (("prompt", prompt), ("response", response), ("prompt + response", both))
    return ", ".join(f"{name} {limit}" for name, limit in named if limit is not None)


def _refuse(
    kind: str, first_id: str, length: str, limit: str, num_over: int, total: int
) -> NoReturn:
    raise DataError(
        f"{num_over} of {total} {kind}s are longer than the limit of {limit} tokens "
        f"(first: {first_id}, {length} tokens)",
        hint="raise the limit, or set overlong to drop or truncate; both are counted",
    )
