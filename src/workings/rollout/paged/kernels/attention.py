"""Attention of one new token per row over keys and values that lie in pages."""

from __future__ import annotations

import torch

MAX_SPLITS = 32
PROGRAMS_PER_MULTIPROCESSOR = 4


def decode_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    block_table: torch.Tensor,
    slots: torch.Tensor,
    lengths: torch.Tensor,
    *,
    scale: float,
    num_splits: int = 1,
) -> torch.Tensor:
    """[rows, heads, head_dim] in the dtype of `query`; 0 for padding rows and empty sequences.

    Args:
        query: floating [rows, heads, head_dim], the last dimension contiguous (the others may be
            strided, as in a view of the fused projection).
        keys, values: [pages, page_size, kv_heads, head_dim]; a key head serves
            heads // kv_heads neighbouring query heads. Slots past a length may hold anything.
        block_table: int32 [slots, max_pages], the pages of each slot in order.
        slots: int32 [rows], slot of each row; -1 is a padding row.
        lengths: int32 [slots], keys to attend to, the new token's included.
        scale: of the scores.
        num_splits: programs that share the keys of one row and head; see `splits_for`.
    """
    if query.is_cuda:
        from workings.rollout.paged.kernels import attention_triton

        return attention_triton.decode_attention(
            query,
            keys,
            values,
            block_table,
            slots,
            lengths,
            scale=scale,
            num_splits=num_splits,
        )
    return decode_attention_torch(query, keys, values, block_table, slots, lengths, scale=scale)


def decode_attention_torch(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    block_table: torch.Tensor,
    slots: torch.Tensor,
    lengths: torch.Tensor,
    *,
    scale: float,
) -> torch.Tensor:
    """The definition of `decode_attention`, in torch; scores and sums in float32 or better."""
    rows, heads, head_dim = query.shape
    page_size, kv_heads = keys.shape[1], keys.shape[2]
    present = slots >= 0
    slot = slots.clamp(min=0).long()
    length = torch.where(present, lengths[slot], 0)
    capacity = block_table.shape[1] * page_size
    index = torch.arange(capacity, device=query.device)
    attended = index < length[:, None]
    # Entries of the table past a length may be anything, so they are not followed.
    pages = torch.where(attended.view(rows, -1, page_size).any(dim=-1), block_table[slot], 0).long()
    precise = torch.promote_types(query.dtype, torch.float32)
    shape = (rows, capacity, kv_heads, head_dim)
    outside = ~attended[:, :, None, None]
    row_keys = keys[pages].reshape(shape).to(precise).masked_fill(outside, 0.0)
    row_values = values[pages].reshape(shape).to(precise).masked_fill(outside, 0.0)
    grouped = query.reshape(rows, kv_heads, heads // kv_heads, head_dim).to(precise)
    scores = torch.einsum("bkgd,bnkd->bkgn", grouped, row_keys) * scale
    scores = scores.masked_fill(~attended[:, None, None], -torch.inf)
    # A row without keys has no softmax; its output is 0.
    shares = scores.softmax(dim=-1).masked_fill((length == 0)[:, None, None, None], 0.0)
    output = torch.einsum("bkgn,bnkd->bkgd", shares, row_values)
    return output.reshape(rows, heads, head_dim).to(query.dtype)


def splits_for(rows: int, kv_heads: int, num_multiprocessors: int) -> int:
    """A power of two: programs per row and key head that fill the device when rows are few.

    >>> splits_for(1024, 2, 132), splits_for(64, 2, 132), splits_for(1, 2, 132)
    (1, 4, 32)
    """
    wanted = num_multiprocessors * PROGRAMS_PER_MULTIPROCESSOR / max(rows * kv_heads, 1)
    splits = 1
    while splits * 2 <= wanted and splits < MAX_SPLITS:
        splits *= 2
    return splits
