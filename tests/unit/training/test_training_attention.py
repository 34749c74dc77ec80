"""Attention to documents against attention under a mask, in value and gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workings.errors import ModelError
from workings.training.attention import Documents, attention_of_layer, document_attention

HEADS, KEY_HEADS, WIDTH = 4, 2, 8


def bounds(lengths):
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)


def plain_documents(lengths):
    return Documents(pieces=bounds(lengths), sizes=torch.tensor([max(lengths), 0, 0, 0]))


def shared_documents(prompts, answers):
    """`answers` holds the lengths of every prompt's answers."""
    flat = [length for group in answers for length in group]
    stretches = [sum(group) for group in answers]
    sizes = [max(prompts + flat), max(prompts), max(stretches), sum(prompts)]
    return Documents(
        pieces=bounds(prompts + flat),
        sizes=torch.tensor(sizes),
        prompts=bounds(prompts),
        answers=bounds(stretches),
    )


def visible(prompts, answers):
    """[W, W] bool: which token sees which."""
    owners, groups = [], []
    for index, length in enumerate(prompts):
        owners += [("prompt", index)] * length
        groups += [index] * length
    for index, group in enumerate(answers):
        for number, length in enumerate(group):
            owners += [(index, number)] * length
            groups += [index] * length
    width = len(owners)
    return torch.tensor(
        [
            [
                (owners[key] == owners[query] and key <= query)
                or (
                    owners[key][0] == "prompt"
                    and owners[query][0] != "prompt"
                    and groups[key] == groups[query]
                )
                for key in range(width)
            ]
            for query in range(width)
        ]
    )


def tensors(width, *, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(width, heads, WIDTH, dtype=dtype, generator=generator).requires_grad_()
        for heads in (HEADS, KEY_HEADS, KEY_HEADS)
    ]


def masked(query, key, value, mask, scale):
    key, value = (tensor.repeat_interleave(HEADS // KEY_HEADS, 1) for tensor in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, key) * scale
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(~mask, -torch.inf).softmax(-1), value)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.lists(st.integers(1, 6), min_size=1, max_size=3)),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
def test_documents_equal_a_mask_in_value_and_gradient(groups, shared):
    prompts, answers = [prompt for prompt, _ in groups], [list(group) for _, group in groups]
    if shared:
        documents, mask = shared_documents(prompts, answers), visible(prompts, answers)
    else:
        lengths = [*prompts, *(length for group in answers for length in group)]
        documents = plain_documents(lengths)
        mask = visible(lengths, [])
    inputs = tensors(len(mask))
    got = document_attention(*inputs, documents, scale=0.4)
    want = masked(*inputs, mask, 0.4)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    direction = torch.randn(got.shape, dtype=got.dtype, generator=torch.Generator().manual_seed(1))
    got_grads = torch.autograd.grad(got, inputs, direction)
    want_grads = torch.autograd.grad(want, inputs, direction)
    for got_grad, want_grad in zip(got_grads, want_grads, strict=True):
        torch.testing.assert_close(got_grad, want_grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_sums_in_float32(dtype):
    prompts, answers = [3, 2], [[4, 1], [5]]
    inputs = tensors(15, dtype=dtype)
    got = document_attention(*inputs, shared_documents(prompts, answers))
    assert got.dtype == dtype
    exact = [tensor.detach().double() for tensor in inputs]
    want = masked(*exact, visible(prompts, answers), WIDTH**-0.5)
    bound = 1e-6 if dtype == torch.float32 else 2**-7
    assert (got.double() - want).abs().max() < bound * want.abs().max()


def test_the_operator_keeps_the_contract_of_torch():
    from workings.training.attention import _attention

    inputs = tensors(15)
    for documents in (shared_documents([3, 2], [[4, 1], [5]]), plain_documents([7, 8])):
        torch.library.opcheck(_attention, (*inputs, *documents, 0.3))


def test_a_layer_that_drops_the_documents_is_refused():
    query, key, value = (tensor.transpose(0, 1)[None] for tensor in tensors(7))
    module = torch.nn.Identity()
    output, weights = attention_of_layer(
        module, query, key, value, None, documents=plain_documents([3, 4]), sliding_window=None
    )
    assert output.shape == (1, 7, HEADS, WIDTH)
    assert weights is None
    with pytest.raises(ModelError, match="Identity does not hand on where documents end"):
        attention_of_layer(module, query, key, value, None)
    for asked in ({"sliding_window": 4}, {"softcap": 30.0}, {"dropout": 0.1}):
        with pytest.raises(ModelError, match=f"asks for {next(iter(asked))}, so packed rows need"):
            attention_of_layer(
                module, query, key, value, None, documents=plain_documents([7]), **asked
            )


def test_a_lane_for_each_row_is_plain_causal_attention():
    generator = torch.Generator().manual_seed(2)
    query, key, value = (
        torch.randn(3, heads, 6, WIDTH, dtype=torch.float64, generator=generator)
        for heads in (HEADS, KEY_HEADS, KEY_HEADS)
    )
    got, _ = attention_of_layer(
        torch.nn.Identity(), query, key, value, None, documents="rows", scaling=0.3
    )
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    for lane in range(3):
        by_token = (tensor[lane].transpose(0, 1) for tensor in (query, key, value))
        want = masked(*by_token, mask, 0.3)
        torch.testing.assert_close(got[lane], want, rtol=0, atol=1e-12)


def test_autocast_reaches_the_attention_as_it_reaches_the_one_of_torch():
    query, key, value = (tensor.transpose(0, 1)[None].float() for tensor in tensors(7))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for documents in (plain_documents([3, 4]), "rows"):
            output, _ = attention_of_layer(
                torch.nn.Identity(), query, key, value, None, documents=documents
            )
            assert output.dtype == torch.bfloat16


def test_autocast_does_not_reach_into_the_operator():
    inputs = tensors(15, dtype=torch.float32)
    documents = shared_documents([3, 2], [[4, 1], [5]])
    want = document_attention(*inputs, documents)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(document_attention(*inputs, documents), want)
