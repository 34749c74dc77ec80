"""Where the token that a decode step processes stands, in its sequence and in the cache."""

from __future__ import annotations

import torch


def decode_places(
    block_table: torch.Tensor, slots: torch.Tensor, lengths: torch.Tensor, page_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(positions, places), int32 [rows] each, of the last token of every row's sequence.

    A position is `length - 1`; a place is page * page_size + offset. Both are -1 for a padding row
    and for a sequence of length 0.

    Args:
        block_table: int32 [slots, max_pages].
        slots: int32 [rows]; -1 is a padding row.
        lengths: int32 [slots], the token being processed included.
    """
    if slots.is_cuda:
        from workings.rollout.paged.kernels import places_triton

        return places_triton.decode_places(block_table, slots, lengths, page_size)
    return decode_places_torch(block_table, slots, lengths, page_size)


def decode_places_torch(
    block_table: torch.Tensor, slots: torch.Tensor, lengths: torch.Tensor, page_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The definition of `decode_places`, in torch."""
    slot = slots.clamp(min=0).long()
    length = torch.where(slots >= 0, lengths[slot], 0)
    position = length - 1
    index = position.clamp(min=0)
    page = block_table[slot, (index // page_size).long()]
    place = torch.where(length > 0, page * page_size + index % page_size, -1)
    return position.int(), place.int()
