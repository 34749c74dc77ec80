"""Keys and values of the rows being decoded, preallocated, with rows that come and go.

transformers' DynamicCache copies the whole cache at every token and cannot let a row out. Here a
layer is one block [rows, heads, capacity, head_dim]; each row has its own length, a new token is
written in place, a row that finished is overwritten by the last one, and a new row takes the next
free place. The first `num_rows` rows are one contiguous piece of memory, which is what batched
matrix multiplication on a CPU wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

STEP = 16
"""Capacity is a multiple of this."""


class RowLayer(DynamicLayer):  # type: ignore[misc]
    """One layer's block. Made by `RowCache`; `update` is what the model calls."""

    def __init__(self, cache: RowCache) -> None:
        super().__init__()
        self._cache = cache

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes one token per row at each row's length; gives views of all rows in use."""
        rows, places = self._cache.row_index, self._cache.lengths
        self.keys[rows, :, places] = key_states[:, :, 0].to(self.keys.dtype)
        self.values[rows, :, places] = value_states[:, :, 0].to(self.values.dtype)
        num_rows = self._cache.num_rows
        return self.keys[:num_rows], self.values[:num_rows]

    def get_seq_length(self) -> int:
        """Tokens in the longest row."""
        return self._cache.longest

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(keys attended to, offset of the first one)."""
        return self._cache.capacity, 0


class RowCache:
    """The blocks of all layers and the lengths of the rows in them.

    Attributes:
        num_rows: rows in use; they are the first ones of every block.
        capacity: tokens that a row can hold; grows and shrinks in steps with the longest row.
        lengths: int64 [num_rows], tokens in each row.
        longest: the largest of `lengths`.
    """

    def __init__(self, *, max_rows: int, device: torch.device) -> None:
        self.max_rows = max_rows
        self.device = device
        self.num_rows = 0
        self.capacity = 0
        self.longest = 0
        self.lengths = torch.zeros(0, dtype=torch.int64, device=device)
        self.row_index = torch.zeros(0, dtype=torch.int64, device=device)
        self._layers: list[RowLayer] = []
        self.model_cache: Any = None

    def admit(self, prompts: DynamicCache, places: Sequence[int], lengths: Sequence[int]) -> None:
        """Appends rows: row j copies the first `lengths[j]` tokens of prompt `places[j]`."""
        if not self._layers:
            self._make_layers(len(prompts.layers))
        start, end = self.num_rows, self.num_rows + len(places)
        if end > self.max_rows:
            raise ValueError(f"{end} rows do not fit into a cache of {self.max_rows}")
        self.longest = max(self.longest, *lengths)
        self._resize(self.longest + 1)
        index = torch.tensor(places, dtype=torch.int64, device=self.device)
        width = max(lengths)
        for layer, prompt in zip(self._layers, prompts.layers, strict=True):
            self._allocate(layer, prompt)
            layer.keys[start:end, :, :width] = prompt.keys[:, :, :width].index_select(0, index)
            layer.values[start:end, :, :width] = prompt.values[:, :, :width].index_select(0, index)
        added = torch.tensor(lengths, dtype=torch.int64, device=self.device)
        self._set_lengths(torch.cat([self.lengths, added]))

    def prepare_step(self) -> None:
        """Makes room for one more token in every row."""
        self._resize(self.longest + 1)

    def finish_step(self) -> None:
        """Counts the token that every row has just been given."""
        self.lengths += 1
        self.longest += 1

    def mask(self, dtype: torch.dtype, window: int | None = None) -> torch.Tensor:
        """Additive mask [rows, 1, 1, capacity] for the step to come: 0 to attend, -inf not to.

        Args:
            window: attend to the last `window` tokens only (sliding attention).
        """
        columns = torch.arange(self.capacity, device=self.device)
        last = self.lengths[:, None]
        hidden = columns > last
        if window is not None:
            hidden |= columns <= last - window
        mask = torch.zeros(hidden.shape, dtype=dtype, device=self.device)
        return mask.masked_fill_(hidden, -torch.inf)[:, None, None]

    def keep(self, survivors: Sequence[int]) -> list[int]:
        """Drops every row that is not in `survivors` (ascending); gives the new order of rows.

        Only rows behind the new end move, into the places that became free before it.
        """
        count = len(survivors)
        staying = set(survivors)
        holes = [row for row in range(count) if row not in staying]
        moving = [row for row in survivors if row >= count]
        order = list(range(count))
        for hole, row in zip(holes, moving, strict=True):
            order[hole] = row
        if holes:
            into = torch.tensor(holes, device=self.device)
            source = torch.tensor(moving, device=self.device)
            for layer in self._layers:
                layer.keys[into] = layer.keys[source]
                layer.values[into] = layer.values[source]
        self._set_lengths(self.lengths[torch.tensor(order, dtype=torch.int64, device=self.device)])
        if count:
            self.longest = int(self.lengths.max())
            self._resize(self.longest + 1)
        else:
            self.longest = 0
        return order

    def _set_lengths(self, lengths: torch.Tensor) -> None:
        self.lengths = lengths
        self.num_rows = lengths.shape[0]
        self.row_index = torch.arange(self.num_rows, device=self.device)

    def _make_layers(self, count: int) -> None:
        self._layers = [RowLayer(self) for _ in range(count)]
        self.model_cache = Cache(layers=self._layers)

    def _allocate(self, layer: RowLayer, prompt: DynamicLayer) -> None:
        if layer.is_initialized:
            return
        heads, head_dim = prompt.keys.shape[1], prompt.keys.shape[3]
        shape = (self.max_rows, heads, self.capacity, head_dim)
        # Zeros, because a masked column still enters a product, and 0 * NaN is NaN.
        layer.keys = prompt.keys.new_zeros(shape)
        layer.values = prompt.values.new_zeros((*shape[:3], prompt.values.shape[3]))
        layer.dtype, layer.device = layer.keys.dtype, layer.keys.device
        layer.is_initialized = True

    def _resize(self, needed: int) -> None:
        """Grows in steps of an eighth, and shrinks when more than a third would be unused."""
        if needed > self.capacity:
            target = needed + max(STEP, needed // 8)
        elif needed < self.capacity * 2 // 3 - STEP:
            target = needed
        else:
            return
        self.capacity = -(-target // STEP) * STEP
        for layer in self._layers:
            if layer.is_initialized:
                layer.keys = self._resized(layer.keys)
                layer.values = self._resized(layer.values)

    def _resized(self, block: torch.Tensor) -> torch.Tensor:
        rows, heads, old, head_dim = block.shape
        new = block.new_zeros(rows, heads, self.capacity, head_dim)
        width = min(old, self.capacity)
        new[: self.num_rows, :, :width] = block[: self.num_rows, :, :width]
        return new
