import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workings.rollout.paged.kernels.norm import add_rms_norm, rms_norm


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(1, 70), st.integers(0, 1000))
def test_a_norm_is_that_of_its_formula(tokens: int, width: int, seed: int) -> None:
    torch.manual_seed(seed)
    x, weight = torch.randn(tokens, width) * 3, torch.randn(width)
    exact = x.double()
    expected = exact / (exact.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    torch.testing.assert_close(rms_norm(x, weight, 1e-5).double(), expected, rtol=1e-5, atol=1e-6)


def test_the_residual_is_added_and_given_back() -> None:
    torch.manual_seed(0)
    x, residual, weight = torch.randn(4, 24), torch.randn(4, 24), torch.randn(24)
    normed, total = add_rms_norm(x, residual, weight, 1e-6)
    assert torch.equal(total, x + residual)
    assert torch.equal(normed, rms_norm(x + residual, weight, 1e-6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_rounds_where_transformers_rounds(dtype: torch.dtype) -> None:
    from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

    torch.manual_seed(1)
    theirs = Qwen2RMSNorm(64, eps=1e-6).to(dtype)
    theirs.weight.data.copy_(torch.randn(64))
    x, residual = torch.randn(9, 64).to(dtype), torch.randn(9, 64).to(dtype)
    normed, _ = add_rms_norm(x, residual, theirs.weight.data, 1e-6)
    assert torch.equal(normed, theirs(residual + x))
