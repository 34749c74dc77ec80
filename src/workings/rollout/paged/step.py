"""One decode step, all on the device: read the slots, run the model, draw, write the slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from workings.rollout.engine import SamplingParams
from workings.rollout.paged.cache import PagedCache
from workings.rollout.paged.kernels.attention import decode_attention
from workings.rollout.paged.kernels.places import decode_places
from workings.rollout.paged.kernels.sampling import Mode, sample, step_uniforms
from workings.rollout.paged.model import PagedModel
from workings.rollout.paged.prefill import split_heads
from workings.rollout.paged.slots import Slots

NOT_SAMPLED = -2
"""Recorded as the id of a row that had nothing to do."""


def mode_of(sampling: SamplingParams) -> Mode:
    """Which way of drawing these parameters need."""
    if sampling.temperature == 0:
        return "greedy"
    return "truncated" if sampling.truncates else "plain"


class Settings:
    """Sampling parameters on the device, where captured steps read them.

    Attributes:
        eos: int32 [n], ids that end a sequence.
    """

    def __init__(self, eos_token_ids: tuple[int, ...], device: torch.device) -> None:
        self.eos = torch.tensor(eos_token_ids, dtype=torch.int32, device=device)
        self.temperature = torch.ones(1, dtype=torch.float32, device=device)
        self.top_k = torch.zeros(1, dtype=torch.int32, device=device)
        self.top_p = torch.ones(1, dtype=torch.float32, device=device)
        self.min_p = torch.zeros(1, dtype=torch.float32, device=device)
        self.min_tokens = torch.zeros(1, dtype=torch.int32, device=device)

    def set(self, sampling: SamplingParams) -> None:
        """Takes over the parameters of a call."""
        self.temperature.fill_(sampling.temperature)
        self.top_k.fill_(sampling.top_k)
        self.top_p.fill_(sampling.top_p)
        self.min_p.fill_(sampling.min_p)
        self.min_tokens.fill_(sampling.min_tokens)


class Records:
    """What the steps of one launch sampled, and the step that is next.

    Attributes:
        table: int32 [3, steps, rows]: ids, and the bits of logprob and kept mass, both float32.
        cursor: int64 [1].
    """

    def __init__(self, num_steps: int, num_rows: int, device: torch.device) -> None:
        self.table = torch.empty((3, num_steps, num_rows), dtype=torch.int32, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)

    def write(self, ids: torch.Tensor, logprobs: torch.Tensor, mass: torch.Tensor) -> None:
        """Takes one step's values, [rows] each, and moves on."""
        line = torch.stack([ids, logprobs.view(torch.int32), mass.view(torch.int32)])
        self.table[:, :, : len(ids)].index_copy_(1, self.cursor, line[:, None])
        self.cursor.add_(1)


@dataclass(frozen=True, slots=True)
class StepKind:
    """What makes one captured step different from another.

    Attributes:
        rows: rows of the batch, padding included.
        mode: way of drawing.
        bans_eos: EOS may have to be kept out (min_tokens).
    """

    rows: int
    mode: Literal["greedy", "plain", "truncated"]
    bans_eos: bool


class DecodeStep:
    """The step as one function of `rows`, without a look at any value of the device.

    Args:
        rows: int32 [rows], slots; padding rows are `slots.padding`.
    """

    def __init__(
        self, model: PagedModel, cache: PagedCache, slots: Slots, settings: Settings
    ) -> None:
        self._model = model
        self._cache = cache
        self._slots = slots
        self._settings = settings

    def run(
        self,
        rows: torch.Tensor,
        records: Records,
        kind: StepKind,
        *,
        num_splits: int,
        num_pages: int | None = None,
    ) -> None:
        """Samples one token for every row with something to do.

        Args:
            num_splits: programs that share a row's keys.
            num_pages: columns of the block table that are read; None is all.
        """
        slots, settings, shape = self._slots, self._settings, self._model.architecture
        places_of_rows = rows.long()
        table = slots.table if num_pages is None else slots.table[:, :num_pages]
        positions, places = decode_places(table, rows, slots.lengths, self._cache.page_size)

        def attend(layer: int, qkv: torch.Tensor) -> torch.Tensor:
            query, _, _ = split_heads(qkv, shape)
            keys, values = self._cache.layer(layer)
            return decode_attention(
                query,
                keys,
                values,
                table,
                rows,
                slots.lengths,
                scale=shape.scale,
                num_splits=num_splits,
            ).flatten(1)

        lengths, steps = slots.lengths[places_of_rows], slots.steps[places_of_rows]
        hidden = self._model.hidden(
            slots.tokens[places_of_rows], positions, places, self._cache, attend
        )
        ids, logprobs, mass = sample(
            self._model.logits(hidden),
            step_uniforms(slots.keys[places_of_rows], steps),
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            min_p=settings.min_p,
            mode=kind.mode,
            banned=settings.eos if kind.bans_eos else None,
            banned_rows=steps < settings.min_tokens if kind.bans_eos else None,
        )
        active = lengths > 0
        records.write(torch.where(active, ids, NOT_SAMPLED), logprobs, mass)
        steps = steps + active.int()
        ended = (ids[:, None] == settings.eos).any(dim=1) | (ids < 0)
        ended |= steps >= slots.limits[places_of_rows]
        slots.tokens[places_of_rows] = ids.clamp(min=0)
        slots.steps[places_of_rows] = steps
        slots.lengths[places_of_rows] = torch.where(active & ~ended, lengths + 1, 0)
