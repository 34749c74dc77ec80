"""Weights on their way to an inference server: packed into buckets, described and summed up.

A bucket is one run of bytes that holds whole tensors; the description beside it says which. Both
sides keep a running sum over descriptions and bytes, and compare it at the end, so a set of weights
that arrived damaged, short or in another order is never sampled from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from workings.errors import EngineError

BUCKET_BYTES = 64 << 20
ALIGNMENT = 16
MAX_TENSOR_BYTES = 64 << 30
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.float64,
        torch.int64,
        torch.int32,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
}
"""What may be sent; anything else is refused by name."""
WORD_PRIME = 65521


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A tensor of a bucket: `offset` is where its bytes begin."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensor."""
        count = 1
        for length in self.shape:
            count *= length
        return count * DTYPES[self.dtype].itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Description and bytes; `data` is uint8 [bytes]."""

    entries: tuple[Entry, ...]
    data: torch.Tensor


class Checksum:
    """A running sum over the buckets of one set of weights, the same on every device."""

    def __init__(self, version: int) -> None:
        self._hash = hashlib.blake2b(str(version).encode(), digest_size=16)

    def add(self, bucket: Bucket) -> None:
        """Take in a bucket."""
        self._hash.update(json.dumps(description(bucket.entries)).encode())
        self._hash.update(repr(_sums(bucket.data)).encode())

    def value(self) -> str:
        """32 hexadecimal digits."""
        return self._hash.hexdigest()


def buckets_of(
    tensors: Iterable[tuple[str, torch.Tensor]],
    device: torch.device,
    *,
    dtype: torch.dtype | None = None,
    bucket_bytes: int = BUCKET_BYTES,
) -> Iterator[Bucket]:
    """The tensors in buckets on `device`, each of its own memory; floating ones as `dtype`.

    A tensor that is larger than a bucket has one to itself.
    """
    held: list[tuple[str, torch.Tensor]] = []
    size = 0
    for name, tensor in tensors:
        sent = tensor.detach()
        if dtype is not None and sent.is_floating_point():
            sent = sent.to(dtype)
        if _dtype_name(sent) not in DTYPES:
            raise EngineError(f"weights of dtype {sent.dtype} cannot be sent ({name})")
        if held and size + sent.nbytes > bucket_bytes:
            yield _bucket(held, device)
            held, size = [], 0
        held.append((name, sent))
        size += _aligned(sent.nbytes)
    if held:
        yield _bucket(held, device)


def tensors_of(bucket: Bucket) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of a bucket, as views of its bytes."""
    for entry in bucket.entries:
        values = bucket.data[entry.offset : entry.offset + entry.num_bytes]
        yield entry.name, values.view(DTYPES[entry.dtype]).view(entry.shape)


def description(entries: Iterable[Entry]) -> list[list[Any]]:
    """The entries as JSON takes them."""
    return [[entry.name, entry.dtype, list(entry.shape), entry.offset] for entry in entries]


def read_description(rows: Any, num_bytes: int) -> tuple[Entry, ...]:
    """The entries of `description`; EngineError where they do not fit into `num_bytes`."""
    try:
        entries = tuple(
            Entry(name=str(name), dtype=str(dtype), shape=tuple(map(int, shape)), offset=int(start))
            for name, dtype, shape, start in rows
        )
    except (TypeError, ValueError) as error:
        raise EngineError(f"a description of weights cannot be read: {error!r}") from error
    for entry in entries:
        if entry.dtype not in DTYPES or min((*entry.shape, 0)) < 0:
            raise EngineError(
                f"weight {entry.name}: dtype {entry.dtype}, shape {list(entry.shape)} cannot be"
            )
        last = entry.offset + entry.num_bytes
        if entry.offset < 0 or entry.offset % ALIGNMENT or last > min(num_bytes, MAX_TENSOR_BYTES):
            raise EngineError(
                f"weight {entry.name} is said to lie at bytes {entry.offset} to {last} of "
                f"{num_bytes}"
            )
    return entries


def _bucket(held: list[tuple[str, torch.Tensor]], device: torch.device) -> Bucket:
    total = sum(_aligned(tensor.nbytes) for _, tensor in held)
    data = torch.zeros(total, dtype=torch.uint8, device=device)
    entries, offset = [], 0
    for name, tensor in held:
        place = data[offset : offset + tensor.nbytes].view(tensor.dtype)
        place.copy_(tensor.reshape(-1))
        entries.append(
            Entry(name=name, dtype=_dtype_name(tensor), shape=tuple(tensor.shape), offset=offset)
        )
        offset += _aligned(tensor.nbytes)
    return Bucket(entries=tuple(entries), data=data)


def _sums(data: torch.Tensor) -> tuple[int, int]:
    """Two sums over 32-bit words, one weighted by place: a change of any word changes one."""
    words = data.view(torch.int32).to(torch.int64)
    places = torch.arange(words.numel(), device=data.device) % WORD_PRIME + 1
    return int(words.sum()), int((words * places).sum())


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
