"""Weights in buckets: bit by bit there and back, and any change on the way shows."""

from __future__ import annotations

import pytest
import torch

from workings.errors import EngineError
from workings.rollout.server.buckets import (
    Bucket,
    Checksum,
    buckets_of,
    description,
    read_description,
    tensors_of,
)

CPU = torch.device("cpu")


def weights() -> list[tuple[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        ("a", torch.randn(3, 5, generator=generator)),
        ("b", torch.randn(7, generator=generator).bfloat16()),
        ("scalar", torch.tensor(3)),
        ("flags", torch.tensor([True, False, True])),
        ("big", torch.randn(40, 10, generator=generator)),
        ("strided", torch.randn(4, 6, generator=generator).T),
        ("empty", torch.empty(0)),
    ]


@pytest.mark.parametrize("size", [1, 64, 200, 10_000])
def test_tensors_come_back_bit_by_bit(size: int) -> None:
    buckets = list(buckets_of(weights(), CPU, bucket_bytes=size))
    assert (len(buckets) == 1) == (size == 10_000)
    received = []
    for bucket in buckets:
        entries = read_description(description(bucket.entries), bucket.data.numel())
        copy = Bucket(entries=entries, data=bucket.data.clone())
        received += list(tensors_of(copy))
    assert [name for name, _ in received] == [name for name, _ in weights()]
    for (_, sent), (_, got) in zip(weights(), received, strict=True):
        assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
        assert torch.equal(got, sent)


def test_floating_weights_are_sent_as_asked_and_others_as_they_are() -> None:
    (bucket,) = buckets_of(weights(), CPU, dtype=torch.bfloat16)
    got = dict(tensors_of(bucket))
    assert torch.equal(got["a"], dict(weights())["a"].bfloat16())
    assert got["scalar"].dtype == torch.int64
    assert got["flags"].dtype == torch.bool


def summed(buckets: list[Bucket], version: int = 3) -> str:
    checksum = Checksum(version)
    for bucket in buckets:
        checksum.add(bucket)
    return checksum.value()


def test_the_sum_is_of_bytes_descriptions_order_and_version() -> None:
    buckets = list(buckets_of(weights(), CPU, bucket_bytes=200))
    right = summed(buckets)
    assert right == summed(list(buckets_of(weights(), CPU, bucket_bytes=200)))
    assert right != summed(buckets, version=4)
    assert right != summed(buckets[:-1])
    assert right != summed(buckets[::-1])
    renamed = [("x" if name == "a" else name, tensor) for name, tensor in weights()]
    assert right != summed(list(buckets_of(renamed, CPU, bucket_bytes=200)))
    for position in (0, 9, 40):
        damaged = [Bucket(entries=b.entries, data=b.data.clone()) for b in buckets]
        damaged[0].data[position] ^= 1
        assert right != summed(damaged)
    swapped = [Bucket(entries=b.entries, data=b.data.clone()) for b in buckets]
    swapped[0].data[:4], swapped[0].data[4:8] = buckets[0].data[4:8], buckets[0].data[:4]
    assert right != summed(swapped)


def test_a_dtype_that_is_not_listed_is_refused() -> None:
    with pytest.raises(EngineError, match=r"dtype torch.complex64 cannot be sent \(z\)"):
        list(buckets_of([("z", torch.zeros(2, dtype=torch.complex64))], CPU))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["w", "float32", [4], 0], "bytes 0 to 16 of 15"),
        (["w", "float32", [1], 8], "bytes 8 to 12"),
        (["w", "float32", [1], -16], "bytes -16 to -12"),
        (["w", "object", [1], 0], "dtype object"),
        (["w", "float32", [-1], 0], r"shape \[-1\]"),
        (["w", "float32"], "cannot be read"),
    ],
)
def test_descriptions_that_cannot_be_are_refused(row: list, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        read_description([row], 15)
