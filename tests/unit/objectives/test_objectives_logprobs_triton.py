"""The GPU's log-probabilities against those of `logprobs.py`, with Triton's interpreter on a CPU.

Triton reads once, when it is imported, whether to interpret, so the kernels are tested in a process
of their own.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from workings.objectives.logprobs import token_logprobs

pytest.importorskip("triton", reason="Triton is not installed")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
inside = pytest.mark.skipif(not INTERPRETED, reason="run by the test that starts the interpreter")


@pytest.mark.skipif(INTERPRETED, reason="this is the process that it starts")
def test_the_kernels_under_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(
        command, env={**kept, "TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.slow
@pytest.mark.skipif(INTERPRETED, reason="this is the process of the other test")
def test_the_kernels_compile_for_an_h100():
    script = Path(__file__).with_name("compiled_logprobs_kernels.py")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("compiled _score_kernel") == 2
    assert ended.stdout.count("compiled _gradient_kernel") == 4


def inputs(dtype, *, num_tokens=9, width=16, vocabulary=150, with_bias=True):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(num_tokens, width, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(vocabulary, width, generator=generator).requires_grad_()
    bias = torch.randn(vocabulary, generator=generator).requires_grad_() if with_bias else None
    targets = torch.randint(vocabulary, (num_tokens,), generator=generator)
    return hidden, weight, bias, targets


def fused(hidden, weight, bias, targets, *, temperature=1.0, scale=1.0, cap=None, **memory):
    from workings.objectives import logprobs_triton

    logprobs_triton.BLOCK = 64  # several blocks in a small vocabulary
    shape = logprobs_triton.Shape(inverse_temperature=1 / temperature, scale=scale, softcap=cap)
    return logprobs_triton.fused_logprobs(hidden, targets, weight, bias, shape, **memory)


def plain(hidden, weight, bias, targets, *, temperature=1.0, scale=1.0, cap=None):
    return token_logprobs(
        hidden,
        targets,
        head_weight=weight,
        head_bias=bias,
        temperature=temperature,
        logit_scale=scale,
        logit_softcap=cap,
    )


def gradients(scores, tensors, *, entropy=0.7):
    mix = torch.linspace(-1, 2, len(scores[0]))
    loss = (mix * scores[0]).sum() + entropy * (mix.flip(0) * scores[1]).sum()
    return torch.autograd.grad(loss, [tensor for tensor in tensors if tensor is not None])


@inside
@pytest.mark.parametrize("memory", [(4, 5), (100, 100)])
@pytest.mark.parametrize("shape", [(1.0, 1.0, None), (0.6, 1.0, None), (1.3, 0.5, 3.0)])
def test_values_and_gradients_are_those_of_the_definition(shape, memory):
    temperature, scale, cap = shape
    settings = {"temperature": temperature, "scale": scale, "cap": cap}
    *tensors, targets = inputs(torch.float32, with_bias=cap is not None)
    row = 4 * tensors[1].shape[0]
    got = fused(
        *tensors, targets, **settings, chunk_bytes=memory[0] * row, kept_bytes=memory[1] * row
    )
    want = plain(*tensors, targets, **settings)
    for got_values, want_values in zip(got[:2], want[:2], strict=True):
        torch.testing.assert_close(got_values, want_values, rtol=0, atol=5e-6)
    assert torch.equal(got[2], want[2])
    for entropy in (0.7, 0.0):
        scores = fused(*tensors, targets, **settings, chunk_bytes=row * memory[0], kept_bytes=0)
        pairs = zip(
            gradients(scores, tensors, entropy=entropy),
            gradients(plain(*tensors, targets, **settings), tensors, entropy=entropy),
            strict=True,
        )
        for got_grad, want_grad in pairs:
            assert (got_grad - want_grad).norm() < 1e-6 * want_grad.norm()


@inside
@pytest.mark.parametrize("kept", [0, 100])
def test_half_precision_rounds_the_logits_alone(kept):
    *tensors, targets = inputs(torch.bfloat16)
    row = 2 * tensors[1].shape[0]
    got = fused(*tensors, targets, chunk_bytes=5 * row, kept_bytes=kept * row)
    want = plain(*tensors, targets)
    for got_values, want_values in zip(got[:2], want[:2], strict=True):
        torch.testing.assert_close(got_values, want_values, rtol=0, atol=5e-6)
    for got_grad, want_grad in zip(gradients(got, tensors), gradients(want, tensors), strict=True):
        assert got_grad.dtype == want_grad.dtype
        # The interpreter cuts bfloat16 off where a GPU rounds.
        assert (got_grad - want_grad).float().norm() < 2**-7 * want_grad.float().norm()


@inside
def test_what_is_kept_changes_no_bit():
    *tensors, targets = inputs(torch.bfloat16)
    row = 2 * tensors[1].shape[0]
    found = [
        gradients(fused(*tensors, targets, chunk_bytes=4 * row, kept_bytes=kept * row), tensors)
        for kept in (0, 4, 8)
    ]
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@inside
def test_a_graph_that_is_kept_can_be_gone_through_twice():
    *tensors, targets = inputs(torch.float32)
    scores = fused(*tensors, targets)
    first = torch.autograd.grad(scores[0].sum(), tensors, retain_graph=True)
    second = torch.autograd.grad(scores[0].sum(), tensors)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@inside
def test_a_frozen_head_gets_no_gradient_and_no_tokens_give_zeros():
    hidden, weight, bias, targets = inputs(torch.float32)
    fused(hidden, weight.detach(), bias.detach(), targets)[0].sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None
    fused(hidden[:0], weight, bias, targets[:0])[0].sum().backward()
    assert weight.grad.count_nonzero() == bias.grad.count_nonzero() == 0


@inside
def test_logits_of_minus_infinity_have_no_share_and_nan_is_not_hidden():
    bias = torch.tensor([0.0, 0.0, -math.inf])
    hidden = torch.ones(2, 2, requires_grad=True)
    scores = fused(hidden, torch.zeros(3, 2), bias, torch.tensor([0, 1]))
    assert scores[1].tolist() == pytest.approx([math.log(2)] * 2, abs=1e-6)
    (scores[0] + scores[1]).sum().backward()
    assert torch.isfinite(hidden.grad).all()
    lost = fused(torch.full((1, 2), math.nan), torch.zeros(3, 2), None, torch.tensor([0]))
    assert lost[0].isnan().all()


@inside
@pytest.mark.parametrize(("rows", "most"), [(0, 7), (1, 7), (16, 16), (100, 48), (97, 5), (33, 32)])
def test_chunks_cover_every_row_once(rows, most):
    from workings.objectives.logprobs_triton import _chunks

    chunks = _chunks(rows, most)
    assert [index for c in chunks for index in range(c.start, c.stop)] == list(range(rows))
    assert all(c.stop - c.start <= most for c in chunks)
    assert len(chunks) == -(-rows // most)
