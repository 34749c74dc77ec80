"""Prompts into the cache: pieces of several sequences, packed without padding."""

from __future__ import annotations

import inspect
from collections.abc import Sequence as Listed
from dataclasses import dataclass
from functools import cache as once
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from workings.rollout.paged.architecture import Architecture
from workings.rollout.paged.cache import PagedCache
from workings.rollout.paged.model import PagedModel
from workings.rollout.paged.scheduler import Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPieces:
    """Pieces behind one another, on the device.

    Attributes:
        ids, positions, places: int32 [tokens].
        key_places: int32 [keys], where all tokens up to each piece's end lie; None where every
            piece starts at the beginning of its sequence, so that its own keys are all.
        query_ends, key_ends: int32 [pieces + 1], sums of lengths from 0.
        longest_query, longest_key: the greatest lengths.
        bounds: (start, end) of every piece in its sequence.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    places: torch.Tensor
    key_places: torch.Tensor | None
    query_ends: torch.Tensor
    key_ends: torch.Tensor
    longest_query: int
    longest_key: int
    bounds: tuple[tuple[int, int], ...]


def pack_pieces(pieces: Listed[Piece], device: torch.device) -> PackedPieces:
    """The pieces as one batch."""
    bounds = tuple((piece.start, piece.end) for piece in pieces)
    queries = [end - start for start, end in bounds]
    keys = [end for _, end in bounds]

    def on_device(parts: list[np.ndarray]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(parts).astype(np.int32)).to(
            device, non_blocking=True
        )

    history = any(start for start, _ in bounds)
    return PackedPieces(
        ids=on_device([np.array(p.sequence.tokens[p.start : p.end]) for p in pieces]),
        positions=on_device([np.arange(start, end) for start, end in bounds]),
        places=on_device([piece.places[piece.start :] for piece in pieces]),
        key_places=on_device([piece.places for piece in pieces]) if history else None,
        query_ends=on_device([np.array([0, *accumulate(queries)])]),
        key_ends=on_device([np.array([0, *accumulate(keys)])]),
        longest_query=max(queries),
        longest_key=max(keys),
        bounds=bounds,
    )


def prefill(model: PagedModel, cache: PagedCache, pieces: PackedPieces) -> None:
    """Computes keys and values of the pieces into the cache."""
    shape = model.architecture

    def attend(layer: int, qkv: torch.Tensor) -> torch.Tensor:
        query, key, value = split_heads(qkv, shape)
        if pieces.key_places is not None:
            key, value = (part.flatten(0, 1)[pieces.key_places] for part in cache.layer(layer))
        if qkv.device.type == "cuda" and qkv.dtype in (torch.bfloat16, torch.float16):
            attended = _packed_attention(query, key, value, pieces, scale=shape.scale)
        else:
            attended = _attention_by_piece(query, key, value, pieces, scale=shape.scale)
        return attended.flatten(1)

    model.fill(pieces.ids, pieces.positions, pieces.places, cache, attend)


def split_heads(
    qkv: torch.Tensor, shape: Architecture
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Views [tokens, heads, head_dim] of query, key and value."""
    heads = qkv.view(len(qkv), -1, shape.head_dim)
    first_value = shape.num_heads + shape.num_kv_heads
    return (
        heads[:, : shape.num_heads],
        heads[:, shape.num_heads : first_value],
        heads[:, first_value:],
    )


def _attention_by_piece(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    pieces: PackedPieces,
    *,
    scale: float,
) -> torch.Tensor:
    """Causal attention, a piece at a time: any device, any dtype."""
    attended = torch.empty_like(query)
    first_query = first_key = 0
    for start, end in pieces.bounds:
        queries = slice(first_query, first_query + end - start)
        keys = slice(first_key, first_key + end)
        mask = torch.ones(end - start, end, dtype=torch.bool, device=query.device).tril_(start)
        attended[queries] = scaled_dot_product_attention(
            query[queries].transpose(0, 1)[None],
            key[keys].transpose(0, 1)[None],
            value[keys].transpose(0, 1)[None],
            attn_mask=mask,
            scale=scale,
            enable_gqa=True,
        )[0].transpose(0, 1)
        first_query, first_key = queries.stop, keys.stop
    return attended


def _packed_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    pieces: PackedPieces,
    *,
    scale: float,
) -> torch.Tensor:
    """The same in one kernel, FlashAttention through torch, causal up to the last key."""
    from torch.nn.attention.varlen import varlen_attn

    names = _varlen_arguments()
    options: dict[str, Any] = {"scale": scale}
    if "window_size" in names:
        options["window_size"] = (-1, 0)
    else:
        options["is_causal"] = True
    if "enable_gqa" in names:
        options["enable_gqa"] = True
    elif key.shape[1] != query.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = (part.repeat_interleave(times, dim=1) for part in (key, value))
    attended = varlen_attn(
        query.contiguous(),
        key.contiguous(),
        value.contiguous(),
        pieces.query_ends,
        pieces.key_ends,
        pieces.longest_query,
        pieces.longest_key,
        **options,
    )
    return attended if isinstance(attended, torch.Tensor) else attended[0]


@once
def _varlen_arguments() -> frozenset[str]:
    """Arguments of torch's variable-length attention, which grew from release to release."""
    from torch.nn.attention.varlen import varlen_attn

    return frozenset(inspect.signature(varlen_attn).parameters)
