"""Chunked log-probabilities against the plain computation, in value and gradient."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from workings.objectives.logprobs import (
    compute_entropy,
    selective_log_softmax,
    token_logprobs,
)


def inputs(num_tokens=13, width=7, vocabulary=19, *, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(num_tokens, width, dtype=dtype, generator=generator).requires_grad_()
    weight = torch.randn(vocabulary, width, dtype=dtype, generator=generator).requires_grad_()
    bias = torch.randn(vocabulary, dtype=dtype, generator=generator).requires_grad_()
    targets = torch.randint(vocabulary, (num_tokens,), generator=generator)
    return hidden, weight, bias, targets


def plain(hidden, weight, bias, targets, *, temperature, scale, cap):
    logits = hidden @ weight.T + bias
    logits = logits * scale
    if cap is not None:
        logits = cap * torch.tanh(logits / cap)
    logprobs = torch.log_softmax(logits / temperature, dim=-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs.gather(-1, targets[:, None]).squeeze(-1), entropy


@pytest.mark.parametrize("rows_per_chunk", [1, 4, 5, 13, 100])
@pytest.mark.parametrize(
    ("temperature", "scale", "cap"), [(1.0, 1.0, None), (0.6, 1.0, None), (1.3, 0.5, 3.0)]
)
def test_chunks_equal_the_plain_path_in_value_and_gradient(rows_per_chunk, temperature, scale, cap):
    hidden, weight, bias, targets = inputs()
    scores = token_logprobs(
        hidden,
        targets,
        head_weight=weight,
        head_bias=bias,
        temperature=temperature,
        logit_scale=scale,
        logit_softcap=cap,
        chunk_bytes=4 * weight.shape[0] * rows_per_chunk,
    )
    expected = plain(hidden, weight, bias, targets, temperature=temperature, scale=scale, cap=cap)
    mix = torch.linspace(-1, 2, len(targets), dtype=torch.float64)
    for got, want, with_entropy in zip(scores[:2], expected, (False, True), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
        factor = 0.7 if with_entropy else 0.0
        got_loss = (mix * scores.logprobs).sum() + factor * (mix * scores.entropies).sum()
        want_loss = (mix * expected[0]).sum() + factor * (mix * expected[1]).sum()
        got_grads = torch.autograd.grad(got_loss, (hidden, weight, bias), retain_graph=True)
        want_grads = torch.autograd.grad(want_loss, (hidden, weight, bias), retain_graph=True)
        for got_grad, want_grad in zip(got_grads, want_grads, strict=True):
            torch.testing.assert_close(got_grad, want_grad, rtol=0, atol=1e-11)


def test_gradcheck():
    hidden, weight, bias, targets = inputs(num_tokens=4, width=3, vocabulary=5)

    def function(h, w, b):
        return token_logprobs(h, targets, head_weight=w, head_bias=b, chunk_bytes=4 * 5 * 3)[:2]

    assert torch.autograd.gradcheck(function, (hidden, weight, bias))


def test_frozen_head_gets_no_gradient():
    hidden, weight, _, targets = inputs()
    scores = token_logprobs(hidden, targets, head_weight=weight.detach())
    scores.logprobs.sum().backward()
    assert weight.grad is None
    assert hidden.grad is not None


def test_is_top_marks_the_most_likely_token():
    hidden, weight, _, _ = inputs()
    best = (hidden @ weight.T).argmax(-1)
    scores = token_logprobs(hidden, best, head_weight=weight)
    assert scores.is_top.all()
    other = (best + 1) % weight.shape[0]
    assert not token_logprobs(hidden, other, head_weight=weight).is_top.any()


def test_no_tokens_give_empty_scores_and_zero_gradients():
    hidden, weight, _, targets = inputs()
    scores = token_logprobs(hidden[:0], targets[:0], head_weight=weight)
    scores.logprobs.sum().backward()
    assert scores.logprobs.shape == (0,)
    assert weight.grad is not None
    assert weight.grad.count_nonzero() == 0


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_temperature_must_be_positive(temperature):
    hidden, weight, _, targets = inputs()
    with pytest.raises(ValueError, match="expected a value above 0"):
        token_logprobs(hidden, targets, head_weight=weight, temperature=temperature)


@pytest.mark.parametrize(
    ("temperature", "expected"), [(0.6, -0.173008), (1.0, -0.313262), (1.3, -0.380742)]
)
def test_a5a_temperature_reaches_the_logprob(temperature, expected):
    # Objectives reference, E21: logits [1, 0].
    hidden, weight = torch.ones(1, 1), torch.tensor([[1.0], [0.0]])
    scores = token_logprobs(hidden, torch.tensor([0]), head_weight=weight, temperature=temperature)
    assert scores.logprobs.item() == pytest.approx(expected, abs=1e-6)


def test_entropy_examples():
    # E24, and a logit of -inf contributes nothing.
    logits = torch.tensor([0.5, 0.25, 0.25]).log()
    assert compute_entropy(logits).item() == pytest.approx(1.039721, abs=1e-6)
    assert compute_entropy(torch.zeros(8)).item() == pytest.approx(math.log(8), abs=1e-6)
    assert compute_entropy(torch.tensor([0.0, 0.0, -math.inf])).item() == pytest.approx(math.log(2))


def test_entropy_of_a_large_vocabulary_is_exact_to_float32():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(8, 4, generator=generator)
    weight = torch.randn(150_000, 4, generator=generator)
    scores = token_logprobs(hidden, torch.arange(8), head_weight=weight)
    want = compute_entropy((hidden @ weight.T).double())
    torch.testing.assert_close(scores.entropies.double(), want, rtol=0, atol=2e-5)


def test_a_logit_of_minus_infinity_adds_no_entropy():
    bias = torch.tensor([0.0, 0.0, -math.inf])
    scores = token_logprobs(
        torch.ones(1, 2), torch.tensor([0]), head_weight=torch.zeros(3, 2), head_bias=bias
    )
    assert scores.entropies.item() == pytest.approx(math.log(2), abs=1e-6)


def test_selective_log_softmax_equals_log_softmax():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(3, 5, 11, generator=generator, dtype=torch.float64)
    labels = torch.randint(11, (3, 5), generator=generator)
    want = torch.log_softmax(logits, -1)
    got = selective_log_softmax(logits, labels)
    for row, column in itertools.product(range(3), range(5)):
        assert got[row, column].item() == pytest.approx(
            want[row, column, labels[row, column]].item(), abs=1e-12
        )


def test_a19a_memory_does_not_grow_with_tokens():
    """Peak extra memory, backward included, is a few chunks and not a few [N, V] tensors."""
    from torch.utils._python_dispatch import TorchDispatchMode

    vocabulary, chunk = 2000, 16

    class LargestOutput(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            for item in out if isinstance(out, tuple | list) else [out]:
                if (
                    isinstance(item, torch.Tensor)
                    and item.ndim == 2
                    and item.shape[1] == vocabulary
                ):
                    self.largest = max(self.largest, item.shape[0])
            return out

    for num_tokens in (64, 512):
        hidden, weight, _, targets = inputs(
            num_tokens, width=8, vocabulary=vocabulary, dtype=torch.float32
        )
        with LargestOutput() as seen:
            scores = token_logprobs(
                hidden, targets, head_weight=weight, chunk_bytes=4 * vocabulary * chunk
            )
            (scores.logprobs.sum() + scores.entropies.sum()).backward()
        assert seen.largest <= chunk


@pytest.mark.parametrize("kept", [torch.bfloat16, torch.float32])
def test_the_gradient_of_a_bfloat16_head_is_summed_in_float32(kept):
    hidden, weight, _, targets = inputs(2048, 16, 19, dtype=torch.bfloat16)
    weight.grad_dtype = kept
    exact = weight.detach().double().requires_grad_()
    logprobs, _ = plain(
        hidden.detach().double(), exact, 0.0, targets, temperature=1.0, scale=1.0, cap=None
    )
    logprobs.sum().backward()
    scores = token_logprobs(
        hidden, targets, head_weight=weight, chunk_bytes=4 * weight.shape[0] * 8
    )
    scores.logprobs.sum().backward()
    assert weight.grad.dtype == kept
    gap = (weight.grad.double() - exact.grad).norm() / exact.grad.norm()
    # 256 chunks summed in bfloat16 would be off by 2 % and more.
    assert gap < (2e-3 if kept == torch.float32 else 4e-3)
