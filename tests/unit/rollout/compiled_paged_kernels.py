"""Compiles every Triton kernel of the paged engine for an H100, on a machine without a GPU.

Run by `test_paged_kernels_triton.py` in a process of its own. It prints a line for each kernel that
was compiled.
"""

import torch

from absent_h100 import compile_kernels_of
from workings.rollout.paged.kernels import (
    activation_triton,
    attention_triton,
    norm_triton,
    places_triton,
    rope_triton,
    sampling_triton,
    uniforms_triton,
)


def zeros(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def compile_all() -> None:
    ints = zeros(16, dtype=torch.int32)
    one = zeros(1, dtype=torch.float32)
    row, wide = zeros(2, 1536), zeros(2, 2 * 8960)
    norm_triton.rms_norm(row, row[0], 1e-6)
    norm_triton.add_rms_norm(row, row, row[0], 1e-6)
    activation_triton.silu_and_multiply(wide)
    places_triton.decode_places(zeros(16, 4, dtype=torch.int32), ints, ints, 16)
    uniforms_triton.step_uniforms(zeros(16, dtype=torch.int64), ints)
    cache, qkv = zeros(4, 16, 2, 128), zeros(16, 16 * 128)
    table = zeros(4, 64, dtype=torch.float32)
    for norm in (None, row[0, :128]):
        rope_triton.rotate_and_store(
            qkv,
            ints,
            ints,
            table,
            table,
            cache,
            cache,
            num_heads=12,
            num_kv_heads=2,
            q_norm=norm,
            k_norm=norm,
        )
    for num_splits in (1, 4):
        attention_triton.decode_attention(
            qkv.view(16, 16, 128)[:, :12],
            cache,
            cache,
            zeros(16, 4, dtype=torch.int32),
            ints,
            ints,
            scale=0.1,
            num_splits=num_splits,
        )
    for mode in ("greedy", "plain", "truncated"):
        sampling_triton.sample(
            zeros(2, 151_936, dtype=torch.float32),
            zeros(2, dtype=torch.float64),
            temperature=one,
            top_k=ints[:1],
            top_p=one,
            min_p=one,
            mode=mode,
            banned=ints[:2],
            banned_rows=zeros(2, dtype=torch.bool),
        )


if __name__ == "__main__":
    compile_kernels_of(compile_all)
