"""Every Triton kernel of the paged engine, under Triton's interpreter, against its torch version.

Run by `test_paged_kernels_triton.py` in a process of its own. The interpreter truncates where a GPU
rounds to bfloat16 and cannot multiply matrices of it, so bfloat16 is read here and rounding to it
is tested on a GPU.
"""

import triton_interpreter  # noqa: F401, I001  (before triton)

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_paged_kernels_rope import DIM, HEADS, KV_HEADS, case
from test_paged_kernels_sampling import SETTINGS, arguments

from workings.rollout.engine import SamplingParams
from workings.rollout.paged.kernels import (
    activation,
    activation_triton,
    attention,
    attention_triton,
    norm,
    norm_triton,
    places,
    places_triton,
    rope,
    rope_triton,
    sampling,
    sampling_triton,
    uniforms_triton,
)

few = settings(max_examples=8, deadline=None, derandomize=True)
seeds = st.integers(0, 1000)


@few
@given(st.integers(0, 3), st.integers(1, 70), seeds)
def test_norms(tokens: int, width: int, seed: int) -> None:
    torch.manual_seed(seed)
    x, residual, weight = torch.randn(tokens, width), torch.randn(tokens, width), torch.randn(width)
    strided = torch.stack([x, residual], dim=1)
    torch.testing.assert_close(
        norm_triton.rms_norm(strided[:, 0], weight, 1e-5), norm.rms_norm_torch(x, weight, 1e-5)
    )
    ours = norm_triton.add_rms_norm(strided[:, 0], strided[:, 1], weight, 1e-5)
    torch.testing.assert_close(ours, norm.add_rms_norm_torch(x, residual, weight, 1e-5))


@few
@given(st.integers(0, 3), st.integers(1, 70), seeds)
def test_the_gate(tokens: int, width: int, seed: int) -> None:
    torch.manual_seed(seed)
    gate_up = torch.randn(tokens, 2 * width) * 5
    torch.testing.assert_close(
        activation_triton.silu_and_multiply(gate_up), activation.silu_and_multiply_torch(gate_up)
    )


def test_a_gate_wider_than_a_block() -> None:
    torch.manual_seed(0)
    gate_up = torch.randn(2, 2 * (activation_triton.BLOCK + 30))
    torch.testing.assert_close(
        activation_triton.silu_and_multiply(gate_up), activation.silu_and_multiply_torch(gate_up)
    )


@pytest.mark.parametrize("elements", [2048, 64])
@pytest.mark.parametrize("normed", [False, True])
def test_rotation(normed: bool, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # With 64 elements a program the heads of a token are spread over several programs.
    monkeypatch.setattr(rope_triton, "ELEMENTS", elements)
    torch.manual_seed(3)
    weights = {name: torch.randn(DIM) if normed else None for name in ("q_norm", "k_norm")}
    sizes = {"num_heads": HEADS, "num_kv_heads": KV_HEADS, "eps": 1e-5}
    ours, theirs = case(4, seed=5), case(4, seed=5)
    for inputs in (ours, theirs):
        inputs["places"][2] = inputs["positions"][2] = -1
    rope_triton.rotate_and_store(**ours, **weights, **sizes)
    rope.rotate_and_store_torch(**theirs, **weights, **sizes)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@few
@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), seeds)
def test_places(lengths: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    slots = torch.randint(-1, len(lengths), (4,), dtype=torch.int32)
    table = torch.randint(0, 50, (len(lengths), 3), dtype=torch.int32)
    inputs = (table, slots, torch.tensor(lengths, dtype=torch.int32), 4)
    assert torch.equal(
        torch.stack(places_triton.decode_places(*inputs)),
        torch.stack(places.decode_places_torch(*inputs)),
    )


@few
@given(
    st.lists(st.integers(0, 37), min_size=1, max_size=3),
    st.sampled_from([(1, 1), (2, 3), (1, 20)]),
    st.sampled_from([6, 16, 20]),
    st.sampled_from([1, 2, 4]),
    seeds,
)
def test_attention(
    lengths: list[int], heads: tuple[int, int], head_dim: int, num_splits: int, seed: int
) -> None:
    torch.manual_seed(seed)
    kv_heads, group = heads
    rows = len(lengths) + 1
    keys, values = torch.randn(2, 30, 4, kv_heads, head_dim)
    table = torch.randperm(30).view(3, 10).int()
    slots = torch.tensor([*range(len(lengths)), -1], dtype=torch.int32).flip(0)
    query = torch.randn(rows, kv_heads * group + 2, head_dim)[:, : kv_heads * group]
    # What an earlier page holds past a length must not matter.
    for slot, length in enumerate(lengths):
        if length < 40:
            page, offset = int(table[slot, length // 4]), length % 4
            keys[page, offset:], values[page, offset:] = torch.nan, torch.nan
    inputs = (query, keys, values, table, slots, torch.tensor(lengths, dtype=torch.int32))
    tiling = attention_triton.Tiling(num_keys=16, num_warps=4, num_stages=2)
    ours = attention_triton.decode_attention(
        *inputs, scale=0.3, num_splits=num_splits, tiling=tiling
    )
    theirs = attention.decode_attention_torch(*inputs, scale=0.3)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@few
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=0, max_size=5), st.integers(0, 2**30))
def test_uniforms(keys: list[int], first: int) -> None:
    words = torch.tensor(keys, dtype=torch.int64)
    steps = torch.arange(first, first + len(keys), dtype=torch.int32)
    assert torch.equal(
        uniforms_triton.step_uniforms(words, steps), sampling.step_uniforms_torch(words, steps)
    )


def compare_samples(
    logits: torch.Tensor, parameters: SamplingParams, *, seed: int, banned: list[int]
) -> None:
    torch.manual_seed(seed)
    rows = len(logits)
    numbers = torch.rand(rows, dtype=torch.float64)
    inputs = arguments(parameters)
    if banned:
        inputs["banned"] = torch.tensor(banned, dtype=torch.int32)
        inputs["banned_rows"] = torch.rand(rows) < 0.5
    ids, logprobs, mass = sampling_triton.sample(logits, numbers, chunk=32, **inputs)
    theirs = sampling.sample_torch(logits, numbers, **inputs)
    assert ids.tolist() == theirs[0].tolist()
    torch.testing.assert_close(logprobs, theirs[1], rtol=1e-5, atol=2e-6, equal_nan=True)
    torch.testing.assert_close(mass, theirs[2], rtol=1e-5, atol=1e-6, equal_nan=True)
    torch.testing.assert_close(mass.log(), theirs[2].log(), rtol=1e-5, atol=2e-5, equal_nan=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("parameters", SETTINGS, ids=repr)
@settings(max_examples=2, deadline=None, derandomize=True)
@given(vocabulary=st.integers(1, 150), seed=seeds, whole=st.booleans(), banning=st.booleans())
def test_sampling(
    parameters: SamplingParams, vocabulary: int, seed: int, whole: bool, banning: bool
) -> None:
    torch.manual_seed(seed)
    logits = torch.randn(2, vocabulary) * 4
    if whole:  # many ties
        logits = logits.round()
    else:
        logits = logits.bfloat16() if seed % 2 else logits
    banned = [0, vocabulary - 1] if banning and vocabulary > 2 else []
    compare_samples(logits, parameters, seed=seed, banned=banned)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("parameters", [SETTINGS[0], SETTINGS[1], SETTINGS[-1]], ids=repr)
def test_sampling_from_odd_rows(parameters: SamplingParams) -> None:
    logits = torch.randn(9, 70) * 3
    logits[0, 40], logits[1, 3], logits[2] = torch.nan, torch.inf, -torch.inf
    logits[3, :66] = -torch.inf  # whole chunks without a weight
    logits[4] = 0.25  # all alike
    logits[5, 7] = 500.0  # one token has all of the mass
    logits[6, 1:] = -torch.inf
    logits[7, 2] = torch.nan
    logits[7, 0] = 500.0
    logits[8] = logits[8] * 1e-6
    compare_samples(logits, parameters, seed=1, banned=[])
    compare_samples(logits[4:6], parameters, seed=2, banned=[7])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("lead", [150.0, 5000.0, torch.inf])
@pytest.mark.parametrize("parameters", [SETTINGS[0], SETTINGS[2], SETTINGS[-1]], ids=repr)
def test_a_banned_token_that_leads(parameters: SamplingParams, lead: float) -> None:
    torch.manual_seed(2)
    logits = torch.randn(6, 70) * 3
    logits[:, 7] = lead
    compare_samples(logits, parameters, seed=2, banned=[7, 69])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "parameters", [SamplingParams(), SamplingParams(top_p=0.9), SamplingParams(top_k=4)], ids=repr
)
def test_the_edges_of_the_unit_interval(parameters: SamplingParams) -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 70).expand(2, -1).contiguous()
    numbers = torch.tensor([0.0, 1.0 - 2.0**-53], dtype=torch.float64)
    inputs = arguments(parameters)
    ids, _, _ = sampling_triton.sample(logits, numbers, chunk=32, **inputs)
    assert ids.tolist() == sampling.sample_torch(logits, numbers, **inputs)[0].tolist()
