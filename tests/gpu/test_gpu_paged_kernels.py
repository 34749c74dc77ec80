"""The paged engine's Triton kernels on a GPU, at the shapes of real models."""

from typing import Any

import numpy as np
import pytest
import torch

from workings.rollout.draws import stream_keys, uniforms
from workings.rollout.paged.kernels.activation import silu_and_multiply, silu_and_multiply_torch
from workings.rollout.paged.kernels.attention import decode_attention, decode_attention_torch
from workings.rollout.paged.kernels.norm import (
    add_rms_norm,
    add_rms_norm_torch,
    rms_norm,
    rms_norm_torch,
)
from workings.rollout.paged.kernels.places import decode_places, decode_places_torch
from workings.rollout.paged.kernels.rope import rotate_and_store, rotate_and_store_torch
from workings.rollout.paged.kernels.sampling import Mode, sample, sample_torch, step_uniforms

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
DTYPES = [torch.float32, torch.bfloat16]
BFLOAT16_STEP = 2.0**-7  # largest distance of neighbours, relative
VOCABULARY = 151_936


@pytest.fixture(autouse=True)
def cuda_by_default() -> Any:
    """Random numbers are drawn on the GPU, and float32 products are exact."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.device("cuda"):
        yield


def assert_rounded_alike(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Equal but for float32 rounding, or for a step of bfloat16 in few places."""
    if ours.dtype == torch.float32:
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    else:
        torch.testing.assert_close(ours, theirs, rtol=2 * BFLOAT16_STEP, atol=1e-6)
        assert (ours != theirs).float().mean() < 0.01


@pytest.mark.parametrize("width", [576, 896, 1536, 2048])
@pytest.mark.parametrize("dtype", DTYPES)
def test_norms(dtype: torch.dtype, width: int) -> None:
    x, residual = torch.randn(2, 333, width).to(dtype)
    weight = torch.randn(width).to(dtype)
    assert_rounded_alike(rms_norm(x, weight, 1e-6), rms_norm_torch(x, weight, 1e-6))
    normed, total = add_rms_norm(x, residual, weight, 1e-6)
    their_normed, their_total = add_rms_norm_torch(x, residual, weight, 1e-6)
    assert torch.equal(total, their_total)
    assert_rounded_alike(normed, their_normed)


@pytest.mark.parametrize("width", [1536, 4864, 8960])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gate(dtype: torch.dtype, width: int) -> None:
    gate_up = (torch.randn(257, 2 * width) * 4).to(dtype)
    assert_rounded_alike(silu_and_multiply(gate_up), silu_and_multiply_torch(gate_up))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(12, 2, 128), (9, 3, 64), (16, 8, 128), (32, 8, 80)]
)
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rotation(
    dtype: torch.dtype, normed: bool, heads: int, kv_heads: int, head_dim: int
) -> None:
    tokens = 300
    qkv = torch.randn(tokens, (heads + 2 * kv_heads) * head_dim).to(dtype)
    positions = torch.randint(0, 4096, (tokens,), dtype=torch.int32)
    places = torch.randperm(40 * 16)[:tokens].int()
    places[7] = positions[7] = -1
    angles = torch.outer(torch.arange(4096.0), 1e4 ** -torch.linspace(0, 1, head_dim // 2))
    norms = torch.randn(2, head_dim).to(dtype) if normed else (None, None)
    results = []
    for rotate in (rotate_and_store, rotate_and_store_torch):
        cache = torch.zeros(2, 40, 16, kv_heads, head_dim, dtype=dtype)
        turned = qkv.clone()
        rotate(
            turned,
            positions,
            places,
            angles.cos(),
            angles.sin(),
            cache[0],
            cache[1],
            num_heads=heads,
            num_kv_heads=kv_heads,
            q_norm=norms[0],
            k_norm=norms[1],
        )
        results.append((turned, cache))
    for ours, theirs in zip(*results, strict=True):
        # A rounding may fall the other way, and what cancels is small beside what it came from.
        tolerance = 1e-5 if dtype == torch.float32 else 2 * BFLOAT16_STEP
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
        assert dtype == torch.float32 or (ours != theirs).float().mean() < 0.01


def paged(
    rows: int, heads: int, kv_heads: int, head_dim: int, longest: int, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """Random arguments of decode_attention; a padding row, an empty one, and NaN past lengths."""
    max_pages = -(-longest // 16)
    num_pages = rows * max_pages + 1
    qkv = torch.randn(rows, (heads + 2 * kv_heads) * head_dim).to(dtype)
    query = qkv.view(rows, -1, head_dim)[:, :heads]
    keys, values = torch.randn(2, num_pages, 16, kv_heads, head_dim).to(dtype)
    table = (torch.randperm(num_pages - 1)[: rows * max_pages] + 1).int().view(rows, max_pages)
    lengths = torch.randint(1, longest + 1, (rows,), dtype=torch.int32)
    lengths[0], lengths[rows // 2] = longest, 0
    slots = torch.randperm(rows).int()
    slots[1] = -1
    for slot, length in enumerate(lengths.tolist()):
        if length % 16:
            keys[table[slot, length // 16], length % 16 :] = torch.nan
            values[table[slot, length // 16], length % 16 :] = torch.nan
    return query, keys, values, table, slots, lengths


@pytest.mark.parametrize("num_splits", [1, 4, 16])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"),
    [(12, 2, 128), (14, 2, 64), (9, 3, 64), (16, 2, 128), (8, 8, 80), (8, 4, 96), (8, 4, 256)],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_attention(
    dtype: torch.dtype, heads: int, kv_heads: int, head_dim: int, num_splits: int
) -> None:
    inputs = paged(37, heads, kv_heads, head_dim, 700, dtype)
    scale = head_dim**-0.5
    ours = decode_attention(*inputs, scale=scale, num_splits=num_splits).double()
    exact = [part.double() if part.is_floating_point() else part for part in inputs]
    theirs = decode_attention_torch(*exact, scale=scale)
    assert not ours.isnan().any()
    assert (ours[1] == 0).all()
    # Shares of attention are rounded to bfloat16, as in FlashAttention; float32 is exact.
    tolerance = 1e-5 if dtype == torch.float32 else 6e-3
    assert (ours - theirs).norm() / theirs.norm() < tolerance


def test_places() -> None:
    slots = torch.randperm(1024).int()
    slots[::7] = -1
    table = torch.randint(0, 10_000, (1025, 256), dtype=torch.int32)
    lengths = torch.randint(0, 4097, (1025,), dtype=torch.int32)
    for ours, theirs in zip(
        decode_places(table, slots, lengths, 16),
        decode_places_torch(table, slots, lengths, 16),
        strict=True,
    ):
        assert torch.equal(ours, theirs)


def test_uniforms_have_the_bits_of_the_other_engines() -> None:
    keys = stream_keys(range(3000), [5] * 3000)
    steps = np.arange(3000) * 7
    ours = step_uniforms(torch.from_numpy(keys.view(np.int64)).cuda(), torch.tensor(steps).int())
    assert (ours.cpu().numpy() == uniforms(keys, steps)).all()


def settings(
    mode: Mode, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> dict[str, Any]:
    """The parameters as `sample` takes them."""
    return {
        "temperature": torch.tensor([temperature]),
        "top_k": torch.tensor([top_k], dtype=torch.int32),
        "top_p": torch.tensor([top_p]),
        "min_p": torch.tensor([min_p]),
        "mode": mode,
    }


def language_like(rows: int) -> torch.Tensor:
    """Float32 logits with a few likely tokens each, from nearly certain to open."""
    logits = torch.randn(rows, VOCABULARY) * 2
    likely = torch.randint(0, VOCABULARY, (rows, 30))
    strength = torch.linspace(0, 4, rows)[:, None] * torch.randn(rows, 30) + 10
    return logits.scatter_add(1, likely, strength)


@pytest.mark.parametrize("banning", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "parameters",
    [
        ("greedy",),
        ("plain",),
        ("plain", 0.6),
        ("truncated", 1.0, 50),
        ("truncated", 0.8, 0, 0.95),
        ("truncated", 1.0, 0, 0.9999),
        ("truncated", 1.0, 0, 1.0, 0.05),
        ("truncated", 1.3, 200, 0.9, 0.01),
    ],
    ids=str,
)
def test_sampling(parameters: tuple[Any, ...], dtype: torch.dtype, banning: bool) -> None:
    rows = 200
    logits = language_like(rows).to(dtype)
    numbers = torch.rand(rows, dtype=torch.float64)
    inputs = settings(*parameters)
    if banning:
        inputs["banned"] = logits[0].topk(2).indices.int()
        inputs["banned_rows"] = torch.rand(rows) < 0.5
    ids, logprobs, mass = sample(logits, numbers, **inputs)
    their_ids, their_logprobs, their_mass = sample_torch(logits, numbers, **inputs)
    same = ids == their_ids
    # A draw within rounding of a boundary may fall to the neighbour.
    assert (~same).sum() <= 1
    torch.testing.assert_close(logprobs[same], their_logprobs[same], rtol=1e-5, atol=5e-6)
    torch.testing.assert_close(mass, their_mass, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("mode", ["greedy", "plain", "truncated"])
def test_broken_rows_are_flagged(mode: Mode) -> None:
    logits = language_like(6)
    logits[0, 1000], logits[1, 70_000], logits[2], logits[3] = [torch.nan] * 3 + [-torch.inf]
    logits[1, 70_000] = torch.inf
    ids, logprobs, mass = sample(
        logits, torch.rand(6, dtype=torch.float64), **settings(mode, top_p=0.9)
    )
    assert (ids[:4] == -1).all()
    assert logprobs[:4].isnan().all()
    assert mass[:4].isnan().all()
    assert (ids[4:] >= 0).all()


def test_all_of_it_can_be_captured() -> None:
    rows, heads, kv_heads, head_dim = 24, 12, 2, 128
    query, keys, values, table, slots, lengths = paged(
        rows, heads, kv_heads, head_dim, 200, torch.bfloat16
    )
    keys.nan_to_num_()
    values.nan_to_num_()
    tables = torch.rand(2, 256, head_dim // 2)
    x = torch.randn(rows, 1536).bfloat16()
    logits = language_like(rows)
    streams = torch.arange(rows)

    def step() -> tuple[torch.Tensor, ...]:
        positions, places = decode_places(table, slots, lengths, 16)
        qkv = torch.cat([query, query[:, : 2 * kv_heads]], dim=1).flatten(1)
        rotate_and_store(
            qkv,
            positions,
            places,
            *tables,
            keys,
            values,
            num_heads=heads,
            num_kv_heads=kv_heads,
        )
        turned = qkv.view(rows, -1, head_dim)[:, :heads]
        outputs = [
            decode_attention(
                turned, keys, values, table, slots, lengths, scale=0.1, num_splits=splits
            )
            for splits in (1, 8)
        ]
        normed, total = add_rms_norm(x, rms_norm(x, x[0], 1e-6), x[1], 1e-6)
        numbers = step_uniforms(streams, slots)
        drawn = [
            part
            for mode in ("greedy", "plain", "truncated")
            for part in sample(logits, numbers, **parameters[mode])
        ]
        return (*outputs, normed, total, silu_and_multiply(x), *drawn)

    parameters = {mode: settings(mode, top_p=0.9) for mode in ("greedy", "plain", "truncated")}
    expected = step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for result in captured:
        result.zero_()
    graph.replay()
    torch.cuda.synchronize()
    for result, other in zip(captured, expected, strict=True):
        assert torch.equal(result, other)
