"""The running batch as the device sees it: one entry per slot, changed by the steps themselves.

A step reads where each of its rows stands and writes where it stands afterwards, so the processor
launches steps without reading results. A slot of length 0 has nothing to do: it is empty, or its
sequence has ended.
"""

from __future__ import annotations

from collections.abc import Sequence as Listed

import numpy as np
import torch

from workings.rollout.paged.sequence import Sequence


class Slots:
    """Per-slot state on the device; the slot after the last one is always empty, for padding.

    Attributes:
        tokens: int32, the newest token of each sequence, the next step's input.
        lengths: int32, tokens up to and including it; 0 where there is nothing to do.
        steps: int32, tokens sampled so far.
        limits: int32, most tokens to sample.
        keys: int64, the bits of each sequence's random stream.
        table: int32 [slots + 1, max_pages], pages of each sequence in order.
    """

    def __init__(self, num_slots: int, max_pages: int, device: torch.device) -> None:
        def zeros(dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(num_slots + 1, dtype=dtype, device=device)

        self.num_slots = num_slots
        self.tokens = zeros(torch.int32)
        self.lengths = zeros(torch.int32)
        self.steps = zeros(torch.int32)
        self.limits = zeros(torch.int32)
        self.keys = zeros(torch.int64)
        self.table = torch.zeros(num_slots + 1, max_pages, dtype=torch.int32, device=device)
        self._device = device

    @property
    def padding(self) -> int:
        """The slot that is always empty."""
        return self.num_slots

    def enter_pages(self, entries: np.ndarray) -> None:
        """Writes int32 [3, n] entries (slot, index, page) into the table."""
        if entries.shape[1]:
            slots, indices, pages = upload(entries, self._device)
            self.table[slots.long(), indices.long()] = pages

    def start(self, sequences: Listed[Sequence]) -> None:
        """Puts sequences that are ready to decode into their slots."""
        if not sequences:
            return
        numbers = np.array(
            [
                (one.slot, one.tokens[-1], one.num_before_decoding + 1, len(one.ids), one.limit)
                for one in sequences
            ],
            dtype=np.int32,
        ).T
        slots, tokens, lengths, steps, limits = upload(numbers, self._device)
        keys = np.array([one.key for one in sequences], dtype=np.uint64).view(np.int64)
        places = slots.long()
        self.tokens[places] = tokens
        self.lengths[places] = lengths
        self.steps[places] = steps
        self.limits[places] = limits
        self.keys[places] = upload(keys, self._device)

    def clear(self) -> None:
        """Nothing has anything to do."""
        self.lengths.zero_()


def upload(numbers: np.ndarray, device: torch.device) -> torch.Tensor:
    """An array on the device, without waiting for what runs there."""
    tensor = torch.from_numpy(np.ascontiguousarray(numbers))
    if device.type != "cuda":
        return tensor
    # A copy from pageable memory would wait for the stream.
    return tensor.pin_memory().to(device, non_blocking=True)
