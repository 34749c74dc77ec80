import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workings.rollout.paged.kernels.attention import decode_attention, splits_for


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([5, 8, 16]),
    st.lists(st.integers(0, 21), min_size=1, max_size=5),
    st.integers(0, 1000),
)
def test_each_row_attends_to_its_own_pages(
    kv_heads: int, group: int, head_dim: int, lengths: list[int], seed: int
) -> None:
    torch.manual_seed(seed)
    rows, page_size, max_pages = len(lengths), 4, 6
    keys, values = torch.randn(2, 30, page_size, kv_heads, head_dim)
    table = torch.randperm(30)[: rows * max_pages].view(rows, max_pages).int()
    slots = torch.randperm(rows).int()
    query = torch.randn(rows, kv_heads * group + 3, head_dim)[:, : kv_heads * group]
    result = decode_attention(
        query, keys, values, table, slots, torch.tensor(lengths, dtype=torch.int32), scale=0.3
    )
    for row in range(rows):
        slot = int(slots[row])
        for head in range(kv_heads * group):
            scores, seen = [], []
            for index in range(lengths[slot]):
                page, offset = int(table[slot, index // page_size]), index % page_size
                key = keys[page, offset, head // group].double()
                scores.append(float(query[row, head].double() @ key) * 0.3)
                seen.append(values[page, offset, head // group].double())
            expected = torch.zeros(head_dim, dtype=torch.float64)
            if seen:
                shares = torch.tensor(scores, dtype=torch.float64).softmax(dim=0)
                expected = shares @ torch.stack(seen)
            assert (result[row, head].double() - expected).abs().max() < 1e-5


def test_padding_and_what_lies_past_the_length_do_not_matter() -> None:
    torch.manual_seed(0)
    keys, values = torch.randn(2, 5, 4, 2, 8)
    table = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32)
    slots, lengths = torch.tensor([1, -1, 0]).int(), torch.tensor([6, 3]).int()
    query = torch.randn(3, 4, 8)
    clean = decode_attention(query, keys, values, table, slots, lengths, scale=1.0)
    keys[1, 2:], values[1, 2:], keys[2, 3:], values[2, 3:] = [torch.nan] * 4
    keys[3:], values[3:] = torch.nan, torch.nan
    table[1, 1] = 1_000_000
    dirty = decode_attention(query, keys, values, table, slots, lengths, scale=1.0)
    assert torch.equal(clean, dirty)
    assert (clean[1] == 0).all()


@pytest.mark.parametrize("rows", [1, 3, 64, 130, 1024])
def test_splits_fill_the_device_and_no_more(rows: int) -> None:
    splits = splits_for(rows, 2, 132)
    assert 1 <= splits <= 32
    assert splits == 1 or rows * 2 * splits <= 4 * 132
