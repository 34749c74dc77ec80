"""How much memory the logits of `token_logprobs` take, and the shares of a device that bound it."""

from __future__ import annotations

import torch

DEFAULT_CHUNK_BYTES = 1 << 27
"""One float32 [chunk, V] tensor of the plain code."""
CHUNK_BYTES = 1 << 31
"""Most bytes of one chunk of logits on a GPU, where its memory is not small."""
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


def logits_bytes(
    num_tokens: int, vocabulary: int, *, number_bytes: int, gpu_bytes: int | None
) -> int:
    """Most bytes that the logits of `num_tokens` take at one time, their gradients included.

    `gpu_bytes` is the memory of the GPU that the kernels in half precision run on; None where the
    plain code runs, in float32 chunks.

    >>> logits_bytes(1000, 32000, number_bytes=2, gpu_bytes=80 << 30) == 1000 * 32000 * 2
    True
    """
    if gpu_bytes is None:
        return _PLAIN_CHUNKS * min(DEFAULT_CHUNK_BYTES, 4 * num_tokens * vocabulary)
    whole, kept = number_bytes * num_tokens * vocabulary, int(gpu_bytes * KEPT_SHARE)
    if whole <= kept:
        return whole
    return min(whole, kept + min(CHUNK_BYTES, int(gpu_bytes * CHUNK_SHARE)))
