"""How much memory the logits of `token_logprobs` take, and the shares of a device that bound it."""

from __future__ import annotations

import torch

DEFAULT_CHUNK_BYTES = 1 << 27
"""One float32 [chunk, V] tensor of the plain code."""
CHUNK_BYTES = 1 << 31
"""Most bytes of one chunk of logits on a GPU, where its memory is not small."""
RECOMPUTED_CHUNK_BYTES = 5 << 28
"""The same where no logits are kept. Memory counts then, but every chunk after the first takes a
gradient of the whole head to add up; 4,096 tokens of a vocabulary of 150,000 are one chunk.
"""
CHUNK_SHARE, KEPT_SHARE = 1 / 32, 1 / 16
"""Shares of a GPU's memory that a chunk, and all kept chunks, may take."""
_PLAIN_CHUNKS = 4
"""[chunk, V] tensors that the plain code holds at once, backward pass included."""


def usable_memory(device: torch.device) -> int:
    """Bytes of the device that this process may use; those of a large GPU where it is none."""
    if device.type != "cuda":
        return 80 << 30
    share = torch.cuda.get_per_process_memory_fraction(device)
    return int(torch.cuda.get_device_properties(device).total_memory * share)


def chunk_limits(memory: int, *, keeps_logits: bool) -> tuple[int, int]:
    """Most bytes of one chunk of logits, and of all that are kept, on a GPU of so much memory."""
    if not keeps_logits:
        return min(RECOMPUTED_CHUNK_BYTES, int(memory * CHUNK_SHARE)), 0
    return min(CHUNK_BYTES, int(memory * CHUNK_SHARE)), int(memory * KEPT_SHARE)


def logits_bytes(
    num_tokens: int,
    vocabulary: int,
    *,
    number_bytes: int,
    gpu_bytes: int | None,
    keeps_logits: bool = True,
) -> int:
    """Most bytes that the logits of `num_tokens` take at one time, their gradients included.

    `gpu_bytes` is the memory of the GPU that the kernels in half precision run on; None where the
    plain code runs, in float32 chunks. `keeps_logits`: as of `token_logprobs`.

    >>> logits_bytes(1000, 32000, number_bytes=2, gpu_bytes=80 << 30) == 1000 * 32000 * 2
    True
    """
    if gpu_bytes is None:
        return _PLAIN_CHUNKS * min(DEFAULT_CHUNK_BYTES, 4 * num_tokens * vocabulary)
    whole = number_bytes * num_tokens * vocabulary
    chunk, kept = chunk_limits(gpu_bytes, keeps_logits=keeps_logits)
    return whole if whole <= kept else min(whole, kept + chunk)
