"""The Triton kernels of fused layers against their torch definitions, in Triton's interpreter.

Run by `test_training_fused.py` in a process of its own.
"""

import sys

import torch

import triton_interpreter  # noqa: F401  (before triton)
from workings.training.fused import (
    adamw,
    adamw_triton,
    gated,
    gated_triton,
    norm,
    norm_triton,
    rotation,
    rotation_triton,
)

GENERATOR = torch.Generator().manual_seed(0)


def drawn(*shape, dtype):
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


def check(got, want, dtype):
    for one, other in zip(got, want, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        gap = (one.double() - other.double()).norm()
        assert gap <= (1e-6 if dtype == torch.float32 else 1e-3) * other.double().norm(), gap


for dtype in (torch.float32, torch.float16):
    for tokens, width in ((7, 24), (1, 33)):
        stream, delta, weight = (
            drawn(tokens, width, dtype=dtype),
            drawn(tokens, width, dtype=dtype),
            drawn(width, dtype=dtype),
        )
        for added in (None, delta):
            want = norm.forward(stream, added, weight, 1e-5)
            got = norm_triton.forward(stream, added, weight, 1e-5)
            check(got, want, dtype)
            for passed in (None, delta):
                grad = drawn(tokens, width, dtype=dtype)
                given = (grad, passed, *want[1:2], weight, want[2])
                check(norm_triton.backward(*given), norm.backward(*given), dtype)
        strided = drawn(width, tokens, dtype=dtype).T
        check(
            norm_triton.forward(strided, None, weight, 1e-5),
            norm.forward(strided, None, weight, 1e-5),
            dtype,
        )
sys.stdout.write("norm\n")

gated_triton.BLOCK = 16
for dtype in (torch.float32, torch.float16):
    for tokens, width in ((3, 40), (5, 16), (0, 8)):
        both, grad = 3 * drawn(tokens, 2 * width, dtype=dtype), drawn(tokens, width, dtype=dtype)
        want = gated.backward_and_product(grad, both)
        check(gated_triton.backward(grad, both, again=True), want, dtype)
        check(gated_triton.backward(grad, both)[:1], want[:1], dtype)
sys.stdout.write("gated\n")

for dtype in (torch.float32, torch.float16):
    for heads in (rotation.Heads(3, 1, 8), rotation.Heads(4, 2, 12), rotation.Heads(1, 1, 2)):
        tokens = 5
        qkv = drawn(tokens, sum(heads.sizes), dtype=dtype)
        angles = torch.randn(tokens, heads.width // 2, generator=GENERATOR)
        cos, sin = (
            torch.cat([table, table], -1).to(dtype) for table in (angles.cos(), angles.sin())
        )
        want = rotation.forward(qkv, cos, sin, heads)
        check(rotation_triton.forward(qkv, cos, sin, heads), want, dtype)
        grads = tuple(drawn(*part.shape, dtype=dtype) for part in want)
        laid_out = tuple(grad.transpose(0, 1).contiguous().transpose(0, 1) for grad in grads)
        back = rotation.backward(grads, cos, sin, heads)
        check([rotation_triton.backward(laid_out, cos, sin, heads)], [back], dtype)
sys.stdout.write("rotation\n")

adamw_triton.BLOCK = 64
shapes = ((3, 5), (16, 10), (2,), (64, 2))
for dtype in (torch.float32, torch.float16):
    weights = [drawn(*shape, dtype=torch.float32) for shape in shapes]
    exact = [torch.nn.Parameter(weight.double()) for weight in weights]
    states = [
        {"step": torch.zeros(()), "exp_avg": 0 * weight, "exp_avg_sq": 0 * weight}
        for weight in weights
    ]
    settings = {"lr": 1e-2, "eps": 1e-8, "weight_decay": 0.1}
    optimizer = torch.optim.AdamW(exact, betas=(0.9, 0.95), **settings)
    for step in range(4):
        grads = [drawn(*shape, dtype=dtype) for shape in shapes]
        for parameter, grad in zip(exact, grads, strict=True):
            parameter.grad = grad.double() / 2
        skipped = step in (0, 2)
        if not skipped:
            optimizer.step()
        adamw.update(
            weights,
            grads,
            states,
            beta1=0.9,
            beta2=0.95,
            grad_scale=torch.tensor(2.0),
            found_inf=torch.tensor(float(skipped)),
            **settings,
        )
        for weight, parameter in zip(weights, exact, strict=True):
            torch.testing.assert_close(weight.double(), parameter, rtol=1e-6, atol=1e-6)
    assert [int(state["step"]) for state in states] == [2] * len(shapes)
    for state, parameter in zip(states, exact, strict=True):
        for name in ("exp_avg", "exp_avg_sq"):
            want = optimizer.state[parameter][name]
            torch.testing.assert_close(state[name].double(), want, rtol=1e-5, atol=1e-7)
sys.stdout.write("adamw\n")
