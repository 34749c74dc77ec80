"""`adamw.update` in Triton: all tensors in one launch, each number read once and written once."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048
ALIGNMENT = 16
"""Bytes and numbers; see `is_aligned`."""
DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


def is_aligned(*tensors: Tensor) -> bool:
    """True where a thread may move several numbers of all these at once."""
    return all(
        tensor.data_ptr() % ALIGNMENT == 0 and tensor.numel() % ALIGNMENT == 0 for tensor in tensors
    )


def update(
    parameters: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    corrections: Tensor,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    grad_scale: Tensor | None,
    found_inf: Tensor | None,
    aligned: bool,
) -> None:
    """See `adamw.update`; `corrections` [tensors, 2] is 1 / (1 - beta1^t), (1 - beta2^t)^(-1/2).

    `aligned`: `is_aligned` says so of every tensor.
    """
    device = corrections.device
    columns = (parameters, grads, exp_avgs, exp_avg_sqs)
    pointers = [[tensor.data_ptr() for tensor in column] for column in columns]
    sizes = tuple(tensor.numel() for tensor in parameters)
    table = torch.tensor([*pointers, sizes], dtype=torch.int64)
    if device.type == "cuda":
        table = table.pin_memory()
    table = table.to(device, non_blocking=True)
    owners, places = _chunks(sizes, device)
    if len(owners) == 0:
        return
    _kernel[(len(owners),)](
        table,
        len(sizes),
        owners,
        places,
        corrections,
        corrections if grad_scale is None else grad_scale,
        corrections if found_inf is None else found_inf,
        lr,
        beta1,
        beta2,
        eps,
        weight_decay,
        grad_dtype=DTYPES[grads[0].dtype],
        scales=grad_scale is not None,
        may_skip=found_inf is not None,
        aligned=aligned,
        block=BLOCK,
        num_warps=4,
    )


@functools.lru_cache(maxsize=16)
def _chunks(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """(tensor, block within it) of every program, int32."""
    counts = [triton.cdiv(size, BLOCK) for size in sizes]
    owners = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(counts))
    places = torch.cat([torch.arange(count) for count in counts])
    return owners.int().to(device), places.int().to(device)


@triton.jit
def _kernel(
    table,
    num_tensors,
    owners,
    places,
    corrections,
    grad_scale,
    found_inf,
    lr,
    beta1,
    beta2,
    eps,
    weight_decay,
    grad_dtype: tl.constexpr,
    scales: tl.constexpr,
    may_skip: tl.constexpr,
    aligned: tl.constexpr,
    block: tl.constexpr,
):
    program = tl.program_id(0)
    owner = tl.load(owners + program)
    line = table + owner
    size = tl.load(line + 4 * num_tensors)
    if may_skip:
        size = size * (1 - tl.load(found_inf).to(tl.int64))  # nothing is inside then
    offset = tl.load(places + program).to(tl.int64) * block + tl.arange(0, block)
    if aligned:
        size = tl.multiple_of(size, 16)
    inside = offset < size
    parameter = tl.load(line).to(tl.pointer_type(tl.float32)) + offset
    grad = tl.load(line + num_tensors).to(tl.pointer_type(grad_dtype)) + offset
    exp_avg = tl.load(line + 2 * num_tensors).to(tl.pointer_type(tl.float32)) + offset
    exp_avg_sq = tl.load(line + 3 * num_tensors).to(tl.pointer_type(tl.float32)) + offset
    if aligned:
        parameter = tl.multiple_of(parameter, 16)
        grad = tl.multiple_of(grad, 16)
        exp_avg = tl.multiple_of(exp_avg, 16)
        exp_avg_sq = tl.multiple_of(exp_avg_sq, 16)
    g = tl.load(grad, mask=inside, other=0.0).to(tl.float32)
    if scales:
        g = g / tl.load(grad_scale)
    p = tl.load(parameter, mask=inside, other=0.0)
    m = tl.load(exp_avg, mask=inside, other=0.0)
    v = tl.load(exp_avg_sq, mask=inside, other=0.0)
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    of_mean = tl.load(corrections + 2 * owner)
    of_square = tl.load(corrections + 2 * owner + 1)
    p = p - lr * weight_decay * p
    p = p - lr * of_mean * m / (tl.sqrt(v) * of_square + eps)
    tl.store(parameter, p, mask=inside)
    tl.store(exp_avg, m, mask=inside)
    tl.store(exp_avg_sq, v, mask=inside)
