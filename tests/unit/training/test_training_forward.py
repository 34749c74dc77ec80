"""What a forward pass hands on to the vocabulary scores."""

from __future__ import annotations

import pytest
import torch

from workings.training.forward import _gathered


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_gradients_of_a_token_that_predicts_many_are_summed_before_they_are_rounded(
    dtype: torch.dtype,
) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 8, generator=generator).to(dtype).requires_grad_()
    places = torch.tensor([1] * 64 + [2])
    gathered = _gathered(hidden, places)
    assert gathered.dtype == dtype
    assert torch.equal(gathered, hidden[places])
    direction = torch.randn(65, 8, generator=generator).to(dtype)
    (grad,) = torch.autograd.grad(gathered, hidden, direction)
    exact = torch.stack([torch.zeros(8), direction[:64].double().sum(0), direction[64].double()])
    rounding = max(torch.finfo(dtype).eps, 1e-5)
    torch.testing.assert_close(grad, exact.to(dtype), rtol=rounding, atol=1e-6)
