import pytest
import torch

from workings.rollout.paged.kernels.activation import silu_and_multiply


def test_the_gate_is_the_first_half() -> None:
    torch.manual_seed(0)
    gate, up = torch.randn(5, 7), torch.randn(5, 7)
    exact = gate.double()
    expected = exact / (1 + (-exact).exp()) * up.double()
    result = silu_and_multiply(torch.cat([gate, up], dim=1))
    torch.testing.assert_close(result.double(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_rounds_where_transformers_rounds(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    gate, up = torch.randn(5, 16).to(dtype), torch.randn(5, 16).to(dtype)
    theirs = torch.nn.functional.silu(gate) * up
    assert torch.equal(silu_and_multiply(torch.cat([gate, up], dim=1)), theirs)
