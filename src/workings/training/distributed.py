"""What the loops need to know about other processes: `Ranks`, one process by default.

A step that is spread over ranks is the step that one process would have made. Each rank holds some
of its rows; the gradients are averaged once, after the last backward pass, and what was measured is
gathered. Every rank makes the same collectives in the same order, also one without any row.

The process group needs a backend for CPU tensors beside NCCL ("cpu:gloo,cuda:nccl"): counts and
metrics travel there. `workings.training.join.join_ranks` makes such a group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from workings.errors import TrainingError

BUCKET_BYTES = 2**26
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process among its peers. Without torch.distributed it is the only one."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> Ranks:
        """The ranks of the initialised default process group, else a single process."""
        if dist.is_available() and dist.is_initialized():
            return cls(rank=dist.get_rank(), size=dist.get_world_size())
        return cls()

    @property
    def is_main(self) -> bool:
        """True on the process that writes files and prints."""
        return self.rank == 0

    def all_sum(self, values: Tensor) -> Tensor:
        """The sum over ranks of a tensor of equal shape on each; the input where there is one."""
        if self.size == 1:
            return values
        total = values.clone()
        dist.all_reduce(total)
        return total

    def all_max(self, values: Tensor) -> Tensor:
        """The largest over ranks, entry by entry."""
        if self.size == 1:
            return values
        largest = values.clone()
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return largest

    def all_concat(self, values: Tensor) -> Tensor:
        """The 1-D tensors of all ranks, one behind the other in the order of the ranks.

        Lengths may differ, and a rank without values may give an empty tensor of any dtype on any
        device; the others agree on the dtype. The values travel as bytes through the CPU and come
        back on the device they were given on, without gradients.
        """
        if values.dim() != 1:
            raise TrainingError(
                f"all_concat got a tensor of shape {tuple(values.shape)}; expected one dimension"
            )
        if self.size == 1:
            return values.detach()
        described = self.all_objects((len(values), values.dtype))
        length, dtype = max(described, key=lambda entry: entry[0])
        padded = torch.zeros(length, dtype=dtype)
        padded[: len(values)] = values.detach().cpu()
        parts = [torch.empty_like(padded).view(torch.uint8) for _ in described]
        if length > 0:
            dist.all_gather(parts, padded.view(torch.uint8))
        whole = [
            part.view(dtype)[:count] for part, (count, _) in zip(parts, described, strict=True)
        ]
        return torch.cat(whole).to(values.device)

    def all_objects(self, value: Value) -> list[Value]:
        """`value` of every rank, in the order of the ranks. Small picklable objects only."""
        if self.size == 1:
            return [value]
        gathered: list[Value | None] = [None] * self.size
        dist.all_gather_object(gathered, value)
        return gathered  # type: ignore[return-value]

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.size > 1:
            dist.barrier()


def sum_counts(counts: list[int], ranks: Ranks) -> list[int]:
    """Counts added over ranks, in one collective."""
    if ranks.size == 1:
        return counts
    total = ranks.all_sum(torch.tensor(counts, dtype=torch.int64))
    return [int(value) for value in total]


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a step measured, on one rank or on all; losses and `sums` add up over ranks."""

    loss: float
    sums: dict[str, float]
    maxima: dict[str, float]


def merge_totals(totals: Totals, ranks: Ranks) -> Totals:
    """The totals over all ranks, in one collective.

    A rank may lack any of the names (it lacks all of them where it had nothing to compute); the
    result has the names of all, sorted, and is the same on every rank.
    """
    parts = ranks.all_objects(totals)
    sums: dict[str, float] = {}
    maxima: dict[str, float] = {}
    for part in parts:
        for name, value in part.sums.items():
            sums[name] = sums.get(name, 0.0) + value
        for name, value in part.maxima.items():
            maxima[name] = _larger(maxima.get(name, -math.inf), value)
    return Totals(
        loss=sum(part.loss for part in parts),
        sums=dict(sorted(sums.items())),
        maxima=dict(sorted(maxima.items())),
    )


def _larger(first: float, second: float) -> float:
    """The larger of two numbers; NaN where one of them is."""
    return second if second > first or math.isnan(second) else first


def average_gradients(
    parameters: Iterable[nn.Parameter], ranks: Ranks, *, bucket_bytes: int = BUCKET_BYTES
) -> None:
    """Replace every gradient by its mean over ranks, with one collective for each bucket.

    All ranks pass the same parameters in the same order; a missing gradient counts as zeros, so
    that a rank without any work takes part. Sharded parameters (FSDP's DTensor) are left alone:
    FSDP has averaged their gradients in the backward pass.
    """
    if ranks.size == 1:
        return
    local = [p for p in parameters if not hasattr(p, "full_tensor")]
    for parameter in local:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    for bucket in _buckets([p.grad for p in local if p.grad is not None], bucket_bytes):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        dist.all_reduce(flat)
        flat /= ranks.size
        pieces = torch.split(flat, [gradient.numel() for gradient in bucket])
        for gradient, piece in zip(bucket, pieces, strict=True):
            gradient.copy_(piece.view_as(gradient))


def _buckets(tensors: list[Tensor], bucket_bytes: int) -> Iterator[list[Tensor]]:
    """Neighbours of one dtype and device, up to `bucket_bytes` together (one at least)."""
    bucket: list[Tensor] = []
    used = 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        alike = bucket and (tensor.dtype, tensor.device) == (bucket[0].dtype, bucket[0].device)
        if bucket and (not alike or used + size > bucket_bytes):
            yield bucket
            bucket, used = [], 0
        bucket.append(tensor)
        used += size
    if bucket:
        yield bucket
