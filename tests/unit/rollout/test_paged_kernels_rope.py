import pytest
import torch

from workings.rollout.paged.kernels.rope import rotate_and_store

HEADS, KV_HEADS, DIM, PAGE = 4, 2, 12, 4


def case(tokens: int, seed: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    angles = torch.outer(torch.arange(32.0), 100.0 ** -torch.linspace(0, 1, DIM // 2))
    return {
        "qkv": torch.randn(tokens, (HEADS + 2 * KV_HEADS) * DIM, generator=generator).to(dtype),
        "positions": torch.randint(0, 32, (tokens,), generator=generator, dtype=torch.int32),
        "places": torch.randperm(6 * PAGE, generator=generator)[:tokens].int(),
        "cos": angles.cos(),
        "sin": angles.sin(),
        "keys": torch.full((6, PAGE, KV_HEADS, DIM), 7.0, dtype=dtype),
        "values": torch.full((6, PAGE, KV_HEADS, DIM), 7.0, dtype=dtype),
    }


def turned(heads: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The rotation as a product of complex numbers, float64 [tokens, heads, DIM]."""
    angle = positions.double()[:, None] * 100.0 ** -torch.linspace(0, 1, DIM // 2).double()
    first, second = heads.double().chunk(2, dim=-1)
    product = torch.complex(first, second) * torch.polar(torch.ones_like(angle), angle)[:, None]
    return torch.cat([product.real, product.imag], dim=-1)


def test_queries_and_keys_turn_and_keys_and_values_are_stored() -> None:
    given = case(5, seed=0)
    before = given["qkv"].clone().view(5, -1, DIM)
    rotate_and_store(**given, num_heads=HEADS, num_kv_heads=KV_HEADS)
    after = given["qkv"].view(5, -1, DIM)
    expected = turned(before[:, : HEADS + KV_HEADS], given["positions"])
    assert (after[:, : HEADS + KV_HEADS].double() - expected).abs().max() < 1e-5
    assert torch.equal(after[:, HEADS + KV_HEADS :], before[:, HEADS + KV_HEADS :])
    keys, values = given["keys"].view(-1, KV_HEADS, DIM), given["values"].view(-1, KV_HEADS, DIM)
    for token, place in enumerate(given["places"].tolist()):
        assert torch.equal(keys[place], after[token, HEADS : HEADS + KV_HEADS])
        assert torch.equal(values[place], after[token, HEADS + KV_HEADS :])
    untouched = torch.ones(6 * PAGE, dtype=torch.bool)
    untouched[given["places"].long()] = False
    assert (keys[untouched] == 7.0).all()
    assert (values[untouched] == 7.0).all()


def test_a_token_without_a_place_is_not_stored() -> None:
    given = case(3, seed=1)
    given["places"][1] = given["positions"][1] = -1
    rotate_and_store(**given, num_heads=HEADS, num_kv_heads=KV_HEADS)
    changed = (given["keys"].view(-1, KV_HEADS * DIM) != 7.0).any(dim=1).nonzero()[:, 0]
    assert sorted(changed.tolist()) == sorted(given["places"][[0, 2]].tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_heads_are_normalised_as_qwen3_does(dtype: torch.dtype) -> None:
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm, apply_rotary_pos_emb

    given = case(5, seed=2, dtype=dtype)
    norms = [Qwen3RMSNorm(DIM, eps=1e-6).to(dtype) for _ in range(2)]
    for norm in norms:
        norm.weight.data.copy_(torch.randn(DIM))
    heads = given["qkv"].clone().view(5, -1, DIM)
    query = norms[0](heads[:, :HEADS]).transpose(0, 1)[None]
    key = norms[1](heads[:, HEADS : HEADS + KV_HEADS]).transpose(0, 1)[None]
    rows = given["positions"].long()
    tables = (torch.cat([given[name][rows]] * 2, dim=-1)[None].to(dtype) for name in ("cos", "sin"))
    query, key = apply_rotary_pos_emb(query, key, *tables)
    rotate_and_store(
        **given,
        num_heads=HEADS,
        num_kv_heads=KV_HEADS,
        q_norm=norms[0].weight.data,
        k_norm=norms[1].weight.data,
        eps=1e-6,
    )
    theirs = torch.cat([query, key], dim=1)[0].transpose(0, 1)
    ours = given["qkv"].view(5, -1, DIM)[:, : HEADS + KV_HEADS]
    # transformers rounds cosines, products and sums to bfloat16; here the sum alone is rounded.
    tolerance = 1e-5 if dtype == torch.float32 else 0.06
    assert (ours.float() - theirs.float()).abs().max() < tolerance
