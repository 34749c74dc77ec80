"""Preference pairs on their way through the model: rows, microbatches, summed log-probabilities.

The two rows of a pair share their prompt and are always in the same microbatch, so that a loss of
pairs is a sum over microbatches. Row `2 p` is the chosen response of the p-th pair of a step, row
`2 p + 1` its rejected one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor, nn

from workings.data.encoding import EncodedPair
from workings.objectives.preference import discounted_sums
from workings.training.compute_weights import compute_weights
from workings.training.forward import response_scores
from workings.training.packing import Layout, MicroBatch, TrainRow, pack

PackPairs = Callable[[Sequence[TrainRow]], list[MicroBatch]]
BLOCK = 64
"""Pairs that are packed at a time where there is no optimizer step to say how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairLogprobs:
    """Summed log-probabilities of the responses of P pairs; [P] each, in nats.

    Attributes:
        places: int64, which pairs of the step these are.
        chosen, rejected: sums over the response, EOS included.
        chosen_discounted, rejected_discounted: the same with `ld_alpha`, which the losses read.
        chosen_lengths, rejected_lengths: int64, trained tokens.
    """

    places: Tensor
    chosen: Tensor
    rejected: Tensor
    chosen_discounted: Tensor
    rejected_discounted: Tensor
    chosen_lengths: Tensor
    rejected_lengths: Tensor

    @property
    def discounted(self) -> Tensor:
        """[P, 2]: what the reference is stored as."""
        return torch.stack([self.chosen_discounted, self.rejected_discounted], dim=1)


def pair_rows(pairs: Iterable[EncodedPair]) -> list[TrainRow]:
    """Two rows for each pair, the chosen one first; `key` and `group` as the module says."""
    return [
        TrainRow(
            key=2 * place + side,
            group=place,
            prompt_ids=pair.chosen.prompt.ids,
            response_ids=response.response_ids,
            mask=(True,) * len(response.response_ids),
        )
        for place, pair in enumerate(pairs)
        for side, response in enumerate((pair.chosen, pair.rejected))
    ]


def pack_pairs(
    rows: Sequence[TrainRow],
    *,
    layout: Layout,
    max_tokens: int,
    max_rows: int | None = None,
    pad_id: int = 0,
    padding_side: Literal["left", "right"] = "right",
    device: torch.device | str = "cpu",
) -> list[MicroBatch]:
    """Microbatches of the rows that `pair_rows` made, no pair split; arguments as of `pack`.

    A single pair over the budget gets a microbatch of its own.
    """
    pairs = [(rows[index], rows[index + 1]) for index in range(0, len(rows), 2)]
    pairs.sort(key=lambda pair: (-_length(pair), pair[0].key))

    def packed(chunk: Sequence[tuple[TrainRow, TrainRow]]) -> list[MicroBatch]:
        together = pack(
            [row for pair in chunk for row in pair],
            layout=layout,
            max_tokens=sum(map(_length, chunk)) * len(chunk) * 2,
            pad_id=pad_id,
            padding_side=padding_side,
            device=device,
        )
        too_large = sum(batch.input_ids.numel() for batch in together) > max_tokens
        if len(chunk) == 1 or not (too_large or len(together) > 1):
            return together
        middle = len(chunk) // 2
        return packed(chunk[:middle]) + packed(chunk[middle:])

    most_pairs = len(pairs) if max_rows is None else max(1, max_rows // 2)
    microbatches: list[MicroBatch] = []
    while pairs:
        size = _fitting(pairs[:most_pairs], max_tokens, padded=layout == "padded")
        microbatches += packed(pairs[:size])
        pairs = pairs[size:]
    return microbatches


def pair_logprobs(logprobs: Tensor, batch: MicroBatch, *, ld_alpha: float = 1.0) -> PairLogprobs:
    """The sums of a microbatch's pairs from its per-token scores [B, T], in order of place."""
    row_of = {key: row for row, key in enumerate(batch.keys)}
    places = sorted({key // 2 for key in batch.keys})
    device = logprobs.device
    first = torch.tensor([row_of[2 * place] for place in places], device=device)
    second = torch.tensor([row_of[2 * place + 1] for place in places], device=device)
    lengths = batch.mask.sum(1)
    shared = torch.empty_like(lengths)
    shared[first] = shared[second] = torch.minimum(lengths[first], lengths[second])
    sums = discounted_sums(logprobs, batch.mask, shared)
    discounted = discounted_sums(logprobs, batch.mask, shared, ld_alpha=ld_alpha)
    return PairLogprobs(
        places=torch.tensor(places, device=device),
        chosen=sums[first],
        rejected=sums[second],
        chosen_discounted=discounted[first],
        rejected_discounted=discounted[second],
        chosen_lengths=lengths[first],
        rejected_lengths=lengths[second],
    )


@torch.no_grad()
def score_microbatches(
    model: nn.Module,
    microbatches: Sequence[MicroBatch],
    *,
    ld_alpha: float = 1.0,
    autocast: torch.dtype | None = None,
) -> PairLogprobs:
    """The sums of every pair of a step under the model as it stands, in order of place."""
    model.eval()
    if not microbatches:
        return _no_pairs(model)
    with compute_weights(model, autocast):
        parts = [
            pair_logprobs(
                response_scores(model, batch, autocast=autocast).logprobs, batch, ld_alpha=ld_alpha
            )
            for batch in microbatches
        ]
    order = torch.cat([part.places for part in parts]).argsort()
    return PairLogprobs(
        **{
            field.name: torch.cat([getattr(part, field.name) for part in parts])[order]
            for field in fields(PairLogprobs)
        }
    )


def score_pairs(
    model: nn.Module,
    pairs: Sequence[EncodedPair],
    *,
    pack_rows: PackPairs,
    ld_alpha: float = 1.0,
    autocast: torch.dtype | None = None,
) -> PairLogprobs:
    """The sums of any number of pairs, in their order; packed and scored in blocks."""
    if not pairs:
        return _no_pairs(model)
    blocks = [
        score_microbatches(
            model,
            pack_rows(pair_rows(pairs[start : start + BLOCK])),
            ld_alpha=ld_alpha,
            autocast=autocast,
        )
        for start in range(0, len(pairs), BLOCK)
    ]
    named = {
        field.name: torch.cat([getattr(block, field.name) for block in blocks])
        for field in fields(PairLogprobs)
    }
    return PairLogprobs(**{**named, "places": torch.arange(len(pairs))})


def _no_pairs(model: nn.Module) -> PairLogprobs:
    """What a rank without any pair has."""
    weight = next(model.parameters())
    whole = torch.empty(0, dtype=torch.int64, device=weight.device)
    real = whole.to(torch.promote_types(weight.dtype, torch.float32))
    return PairLogprobs(
        places=whole,
        chosen=real,
        rejected=real,
        chosen_discounted=real,
        rejected_discounted=real,
        chosen_lengths=whole,
        rejected_lengths=whole,
    )


def _length(pair: tuple[TrainRow, TrainRow]) -> int:
    """Tokens of a pair where both rows have a prompt of their own."""
    return sum(len(row.prompt_ids) + len(row.response_ids) for row in pair)


def _fitting(pairs: Sequence[tuple[TrainRow, TrainRow]], max_tokens: int, *, padded: bool) -> int:
    """How many of the first pairs fit the budget by their lengths; 1 at least."""
    used = 0
    longest = max(len(row.prompt_ids) + len(row.response_ids) for row in pairs[0])
    for size, pair in enumerate(pairs):
        if padded:
            longest = max(longest, *(len(r.prompt_ids) + len(r.response_ids) for r in pair))
            used = 2 * (size + 1) * longest
        else:
            used += len(pair[0].prompt_ids) + sum(len(row.response_ids) for row in pair)
        if used > max_tokens:
            return max(1, size)
    return len(pairs)
