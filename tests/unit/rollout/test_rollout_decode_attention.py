"""Row attention against torch's own, and its switch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from workings.rollout.decode_attention import NAME, decoding_attention, row_attention


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads", [2, 6])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_row_attention_equals_fused_attention(
    dtype: torch.dtype, heads: int, scaling: float | None
) -> None:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    query, key, value = random(5, heads, 1, 8), random(5, 2, 32, 8), random(5, 2, 32, 8)
    hidden = torch.arange(32) > torch.tensor([3, 31, 0, 17, 9])[:, None]
    mask = torch.zeros(5, 1, 1, 32, dtype=dtype).masked_fill(hidden[:, None, None], -torch.inf)
    output, _ = row_attention(torch.nn.Identity(), query, key, value, mask, scaling=scaling)
    repeated = [part.double().repeat_interleave(heads // 2, dim=1) for part in (key, value)]
    expected = torch.nn.functional.scaled_dot_product_attention(
        query.double(), *repeated, attn_mask=mask.double(), scale=scaling
    ).transpose(1, 2)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 3e-2}[dtype]
    assert output.dtype == dtype
    assert torch.allclose(output.double(), expected, atol=tolerance)


def test_the_switch_is_undone_and_leaves_eager_models_alone() -> None:
    config = SimpleNamespace(_attn_implementation="sdpa")

    def fail() -> None:
        with decoding_attention(config):
            assert config._attn_implementation == NAME
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert config._attn_implementation == "sdpa"
    eager = SimpleNamespace(_attn_implementation="eager")
    with decoding_attention(eager):
        assert eager._attn_implementation == "eager"
