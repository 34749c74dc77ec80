"""`decode_attention` in Triton: online softmax over tiles of keys, found by the block table.

One program takes the query heads that share a key head, padded to the 16 rows of a tensor core, so
that each key is read once for all of them (Milakov and Gimelshein 2018 for the softmax). When rows
are few, several programs share the keys of a row and a second kernel merges what they found (flash
decoding, Dao et al. 2023). The key heads of a row, then the rows, follow each other in launch
order: samples of one prompt stand next to each other in the batch, so the programs that read the
same pages run at the same time and the second to the last find them in the L2 cache.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634
LEAST_DOT_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """How one program walks over its keys.

    Attributes:
        num_keys: keys per step, a power of two, 16 or more.
        num_warps: of the program.
        num_stages: depth of the software pipeline of the loads.
    """

    num_keys: int
    num_warps: int
    num_stages: int


TILINGS = {
    64: Tiling(num_keys=64, num_warps=4, num_stages=3),
    128: Tiling(num_keys=64, num_warps=4, num_stages=3),
    256: Tiling(num_keys=32, num_warps=4, num_stages=2),
}
"""By head_dim, rounded up to a power of two, in 16-bit dtypes."""
EXACT_TILING = Tiling(num_keys=32, num_warps=4, num_stages=1)
"""In float32, which is multiplied exactly and therefore not on the tensor cores."""


def tiling_for(head_dim: int, dtype: torch.dtype) -> Tiling:
    """The measured tiling for heads of this size."""
    if dtype.itemsize > 2:
        return EXACT_TILING
    return TILINGS[min(max(triton.next_power_of_2(head_dim), 64), 256)]


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
    tiling: Tiling | None = None,
) -> torch.Tensor:
    """See `attention.decode_attention`; `tiling` is for measurements."""
    rows, heads, head_dim = query.shape
    page_size, kv_heads = keys.shape[1], keys.shape[2]
    assert query.stride(2) == 1
    assert keys.is_contiguous()
    assert values.is_contiguous()
    assert block_table.stride(1) == 1
    assert heads % kv_heads == 0
    tiling = tiling or tiling_for(head_dim, keys.dtype)
    output = torch.empty((rows, heads, head_dim), dtype=query.dtype, device=query.device)
    if rows == 0:
        return output
    dim_block = max(16, triton.next_power_of_2(head_dim))
    if num_splits > 1:
        shape = (rows, heads, num_splits, head_dim)
        partial = torch.empty(shape, dtype=torch.float32, device=query.device)
        weights = torch.empty(shape[:-1], dtype=torch.float32, device=query.device)
    else:
        partial, weights = output, output
    _attend_kernel[(kv_heads, rows, num_splits)](
        query,
        keys,
        values,
        block_table,
        slots,
        lengths,
        partial,
        weights,
        scale * LOG2_E,
        query.stride(0),
        query.stride(1),
        block_table.stride(0),
        kv_heads=kv_heads,
        group=heads // kv_heads,
        group_block=max(LEAST_DOT_ROWS, triton.next_power_of_2(heads // kv_heads)),
        head_dim=head_dim,
        dim_block=dim_block,
        page_size=page_size,
        num_keys=tiling.num_keys,
        num_splits=num_splits,
        num_warps=tiling.num_warps,
        num_stages=tiling.num_stages,
    )
    if num_splits > 1:
        _merge_kernel[(rows * heads,)](
            partial,
            weights,
            output,
            head_dim=head_dim,
            dim_block=dim_block,
            num_splits=num_splits,
            splits_block=triton.next_power_of_2(num_splits),
            num_warps=4,
        )
    return output


@triton.jit
def _attend_kernel(
    query,
    keys,
    values,
    block_table,
    slots,
    lengths,
    output,
    weights,
    scale,
    query_row_stride,
    query_head_stride,
    table_stride,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    group_block: tl.constexpr,
    head_dim: tl.constexpr,
    dim_block: tl.constexpr,
    page_size: tl.constexpr,
    num_keys: tl.constexpr,
    num_splits: tl.constexpr,
):
    kv_head = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2)
    slot = tl.load(slots + row)
    length = tl.load(lengths + slot, mask=slot >= 0, other=0)
    share = tl.cdiv(tl.cdiv(length, num_keys), num_splits) * num_keys
    start = split * share
    stop = tl.minimum(start + share, length)

    member = tl.arange(0, group_block)[:, None]
    dim = tl.arange(0, dim_block)[None, :]
    head = kv_head * group + member
    mine = (member < group) & (dim < head_dim)
    query_pointers = query + row * query_row_stride + head * query_head_stride + dim
    queries = tl.load(query_pointers, mask=mine & (start < stop), other=0.0)

    table = block_table + slot.to(tl.int64) * table_stride
    token_stride: tl.constexpr = kv_heads * head_dim
    highest = tl.full([group_block], float("-inf"), tl.float32)
    total = tl.zeros([group_block], tl.float32)
    summed = tl.zeros([group_block, dim_block], tl.float32)
    index = start + tl.arange(0, num_keys)
    page = tl.load(table + index // page_size, mask=index < stop, other=0)
    # No trip for an empty range: such a program only writes zeros.
    for first in range(start, stop, num_keys):
        index = first + tl.arange(0, num_keys)
        inside = index < stop
        place = page.to(tl.int64) * page_size + index % page_size
        # Pages are read one trip ahead: loads of keys that wait for no other load can be issued
        # several trips ahead by the compiler.
        ahead = index + num_keys
        page = tl.load(table + ahead // page_size, mask=ahead < stop, other=0)
        offset = (place * token_stride + kv_head * head_dim)[:, None] + dim
        read = inside[:, None]
        if dim_block > head_dim:
            read = read & (dim < head_dim)
        tile_keys = tl.load(keys + offset, mask=read, other=0.0)
        scores = tl.dot(queries, tl.trans(tile_keys), input_precision="ieee") * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        # A tile holds at least one key, so the new highest score is finite.
        raised = tl.maximum(highest, tl.max(scores, axis=1))
        shares = tl.exp2(scores - raised[:, None])
        shrink = tl.exp2(highest - raised)
        total = total * shrink + tl.sum(shares, axis=1)
        tile_values = tl.load(values + offset, mask=read, other=0.0)
        summed = summed * shrink[:, None]
        summed = tl.dot(
            shares.to(values.dtype.element_ty), tile_values, summed, input_precision="ieee"
        )
        highest = raised

    divisor = tl.where(total > 0.0, total, 1.0)
    result = summed / divisor[:, None]
    flat_head = row * (kv_heads * group) + head
    if num_splits == 1:
        pointers = output + flat_head * head_dim + dim
        tl.store(pointers, result.to(output.dtype.element_ty), mask=mine)
    else:
        place = flat_head * num_splits + split
        tl.store(output + place * head_dim + dim, result, mask=mine & (start < stop))
        # The logarithm to base 2 of the sum of exponentials; -inf where the range was empty.
        weight = tl.where(total > 0.0, highest + tl.log2(divisor), float("-inf"))
        tl.store(weights + place, weight[:, None], mask=member < group)


@triton.jit
def _merge_kernel(
    partial,
    weights,
    output,
    head_dim: tl.constexpr,
    dim_block: tl.constexpr,
    num_splits: tl.constexpr,
    splits_block: tl.constexpr,
):
    flat_head = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, splits_block)
    dim = tl.arange(0, dim_block)
    weight = tl.load(
        weights + flat_head * num_splits + split, mask=split < num_splits, other=float("-inf")
    )
    highest = tl.max(weight, axis=0)
    share = tl.exp2(weight - tl.where(highest == float("-inf"), 0.0, highest))
    total = tl.sum(share, axis=0)
    # What an empty range left unwritten is not read: it may be NaN.
    written = (weight > float("-inf"))[:, None] & (dim < head_dim)[None, :]
    place = (flat_head * num_splits + split)[:, None] * head_dim + dim[None, :]
    parts = tl.load(partial + place, mask=written, other=0.0)
    merged = tl.sum(parts * share[:, None], axis=0) / tl.where(total > 0.0, total, 1.0)
    pointers = output + flat_head * head_dim + dim
    tl.store(pointers, merged.to(output.dtype.element_ty), mask=dim < head_dim)
