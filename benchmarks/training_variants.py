"""Our training step in its variants: which attention, head, kernels and checkpointing pay?

`python benchmarks/training.py --variants` times them one after another on one card and in one
process, on the case of 8 x 2,048 tokens, those with Liger's kernels last, and shows for some of
them what the card does with the time. What is measured here decides defaults; it is no result.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from shapes import SHAPES, Shape, random_prompts
from training_sides import (
    DENSE_PEAK,
    LEARNING_RATE,
    SFTCase,
    forget_peak,
    free,
    half_of,
    now,
    peak_gib,
    random_model,
)

CASE = SFTCase(shape="1.5B", rows=8, length=2048)
UNEVEN = (700, 4000, 1300, 2900, 400, 3500, 1584, 2000)
"""Lengths that add up to the same tokens."""
GROUPS = ("products", "attention", "vocabulary scores", "optimizer", "copies", "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How a step is made, and on which rows.

    Attributes:
        rows: even (one length), documents (one length, packed all the same), uneven, masked.
        copies: weights are copied to bfloat16 once a step; else autocast casts at every use.
        head: fused, recomputed (nothing kept), torch.
        profiled: show the kernels that take most time.
    """

    name: str
    kernels: str = "plain"
    rows: str = "even"
    copies: bool = True
    head: str = "fused"
    checkpointing: str = "none"
    microbatches: int = 1
    profiled: bool = False


VARIANTS = (
    # Plain layers keep so much that a step takes them in two passes; `liger_2` compares.
    Variant(name="before", copies=False, head="torch", microbatches=2),
    Variant(name="autocast", copies=False, microbatches=2),
    Variant(name="plain", microbatches=2),
    Variant(name="fused", kernels="fused", profiled=True),
    Variant(name="fused_uneven", kernels="fused", rows="uneven"),
    Variant(name="fused_selective", kernels="fused", checkpointing="selective"),
    Variant(name="fused_full", kernels="fused", checkpointing="full"),
    Variant(name="compiled", kernels="compiled", profiled=True),
    Variant(name="compiled_uneven", kernels="compiled", rows="uneven"),
    Variant(name="compiled_selective", kernels="compiled", checkpointing="selective"),
    Variant(name="liger_2", kernels="liger", microbatches=2),
    Variant(name="liger_autocast", kernels="liger", copies=False, microbatches=2),
    Variant(name="liger", kernels="liger", profiled=True),
    Variant(name="liger_torch_head", kernels="liger", head="torch"),
    Variant(name="liger_recomputed_head", kernels="liger", head="recomputed"),
    Variant(name="liger_documents", kernels="liger", rows="documents"),
    Variant(name="liger_uneven", kernels="liger", rows="uneven", profiled=True),
    Variant(name="liger_selective", kernels="liger", checkpointing="selective"),
    Variant(name="liger_full", kernels="liger", checkpointing="full"),
    Variant(name="liger_offloaded", kernels="liger", checkpointing="offloaded"),
)


def measure_variants(
    names: Sequence[str], *, device: str, seconds: float, case: SFTCase = CASE
) -> int:
    """The exit code: 0, or 1 for an unknown name. `seconds`: none is begun after so many."""
    known = {variant.name: variant for variant in VARIANTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"unknown variant {', '.join(unknown)}; there are {', '.join(known)}")
        return 1
    started = time.perf_counter()
    bench = Bench(case, device)
    bench.time_attention()
    for variant in in_order([known[name] for name in names] or VARIANTS):
        if time.perf_counter() - started > seconds:
            print(f"no time left for {variant.name} and what follows")
            break
        try:
            bench.time(variant)
        except Exception as error:  # One variant that fails must not cost the others.
            print(
                f"{variant.name:24s} failed: {type(error).__name__}: {str(error)[:600]}", flush=True
            )
            bench.forget()
        print(f"    [{time.perf_counter() - started:4.0f} s]", flush=True)
    return 0


def in_order(variants: Sequence[Variant]) -> list[Variant]:
    """Those with Liger's kernels last: they stay in the classes of every later model.

    >>> liger, compiled = (Variant(name=name, kernels=name) for name in ("liger", "compiled"))
    >>> [variant.name for variant in in_order([liger, compiled])]
    ['compiled', 'liger']
    """
    return sorted(variants, key=lambda variant: variant.kernels == "liger")


class Bench:
    """A model and its optimizer, made anew where kernels cannot be taken out again."""

    def __init__(self, case: SFTCase, device: str) -> None:
        self.case = case
        self.device = device
        self.kernels = "plain"
        self.model: Any = None
        self.optimizer: Any = None
        self.made: dict[str, list[Any]] = {}
        self.pack_seconds = 0.0

    def forget(self) -> None:
        """The next variant starts from a new model."""
        self.model = self.optimizer = None
        free()

    def time(self, variant: Variant) -> None:
        """Prints the median step, its parts, and the peak of memory."""
        from workings.training.layers import prepare_layers
        from workings.training.optim import build_adamw, set_learning_rate

        if self.kernels != "plain" and self.kernels != variant.kernels:
            self.forget()
        if self.model is None:
            self.model = random_model(SHAPES[self.case.shape], self.device)
            self.optimizer = build_adamw(self.model)
            set_learning_rate(self.optimizer, LEARNING_RATE)
        self.kernels = variant.kernels
        prepare_layers(self.model, checkpointing=variant.checkpointing, kernels=variant.kernels)
        with arranged(variant):
            began = now()
            self._step(variant)
            first = now() - began
            self._step(variant)
            forget_peak()
            seconds = []
            for _ in range(4):
                before = now()
                self._step(variant)
                seconds.append(now() - before)
            peak = peak_gib()
            median = sorted(seconds)[len(seconds) // 2]
            print(
                f"{variant.name:24s} {median * 1e3:7.1f} ms  "
                f"{100 * self.case.flops / median / DENSE_PEAK:5.1f} % MFU  "
                f"{self.case.tokens / median:8,.0f} tokens/s  {peak:5.1f} GiB  "
                f"(pack {self.pack_seconds * 1e3:.1f} ms, first step {first:.1f} s)",
                flush=True,
            )
            if variant.profiled:
                self._profile(variant)

    def _step(self, variant: Variant) -> None:
        from workings.training.distributed import Ranks
        from workings.training.packing import pack, step_totals
        from workings.training.step import policy_step
        from workings.training.supervised_loss import supervised_loss

        rows = self.rows(variant)
        began = time.perf_counter()
        batches = pack(
            rows,
            layout="packed" if variant.rows == "masked" else "documents",
            max_tokens=self.case.tokens // variant.microbatches,
            device=self.device,
        )
        self.pack_seconds = time.perf_counter() - began
        loss = supervised_loss(step_totals(rows, Ranks()))
        policy_step(self.model, self.optimizer, batches, loss, autocast=half_of(self.device))

    def rows(self, variant: Variant) -> list[Any]:
        """Rows of random ids, every token but the first trained; made once."""
        from workings.training.packing import TrainRow

        if variant.rows in self.made:
            return self.made[variant.rows]
        lengths = [self.case.length] * self.case.rows
        if variant.rows in ("uneven", "masked"):
            lengths = [length * self.case.length // 2048 for length in UNEVEN[: self.case.rows]]
        shape = SHAPES[self.case.shape]
        found = []
        for key, length in enumerate(lengths):
            (ids,) = random_prompts(shape, 1, length, seed=key)
            found.append(
                TrainRow(
                    key=key,
                    group=key,
                    prompt_ids=ids[:1],
                    response_ids=ids[1:],
                    mask=(True,) * (length - 1),
                )
            )
        self.made[variant.rows] = found
        return found

    def _profile(self, variant: Variant) -> None:
        """What the card did in one step: time by kind of kernel, and the longest kernels."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        if not torch.cuda.is_available():
            return
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            began = now()
            self._step(variant)
            wall = now() - began
        spent: dict[str, float] = {}
        kinds = dict.fromkeys(GROUPS, 0.0)
        for event in found.key_averages():
            milliseconds = event.self_device_time_total / 1e3
            spent[f"{event.count:5d} x {event.key[:110]}"] = milliseconds
            kinds[kind_of(event.key)] += milliseconds
        busy = sum(kinds.values())
        listed = ", ".join(f"{kind} {spent:.1f}" for kind, spent in kinds.items())
        print(f"    {wall * 1e3:.1f} ms, busy {busy:.1f}: {listed}")
        for name in sorted(spent, key=lambda one: -spent[one])[:22]:
            print(f"    {spent[name]:7.2f} ms {name}")

    def time_attention(self) -> None:
        """Prints forward and backward of one layer's attention, by every way there is."""
        import torch

        if torch.cuda.is_available():
            shape = SHAPES[self.case.shape]
            time_attention(shape, self.case.rows, self.case.length)
            time_attention(shape, self.case.rows // 4, 4 * self.case.length)


def time_attention(shape: Shape, rows: int, length: int) -> None:
    """Prints what one layer's attention takes on `rows` rows of `length` tokens."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from workings.training.attention import Documents, document_attention

    sdpa = torch.nn.functional.scaled_dot_product_attention
    own, shared = shape.heads, shape.kv_heads
    bounds = torch.arange(0, rows * length + 1, length, dtype=torch.int32, device="cuda")
    documents = Documents(pieces=bounds, sizes=torch.tensor([length, 0, 0, 0]))

    def tensors(*heads: int) -> list[Any]:
        size = (rows, length, shape.head_dim)
        return [
            torch.randn(*size[:2], count, size[2], device="cuda", dtype=torch.bfloat16)
            for count in heads
        ]

    def lanes(*heads: int) -> list[Any]:
        return [one.transpose(1, 2).requires_grad_() for one in tensors(*heads)]

    def packed(*heads: int) -> list[Any]:
        return [one.flatten(0, 1).requires_grad_() for one in tensors(*heads)]

    def by_cudnn(q: Any, k: Any, v: Any) -> Any:
        kernels = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]
        with sdpa_kernel(kernels, set_priority=True):
            return sdpa(q, k, v, is_causal=True, enable_gqa=True)

    class PackedByCudnn(torch.autograd.Function):
        """The kernel that torch has for nested tensors, called by itself."""

        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
            ends = (bounds, bounds, length, length)
            found = torch.ops.aten._cudnn_attention_forward(
                q, k, v, None, *ends, True, 0.0, True, False, scale=shape.head_dim**-0.5
            )
            ctx.save_for_backward(q, k, v, found[0], found[1], found[6], found[7])
            return found[0]

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            q, k, v, output, normaliser, seed, offset = ctx.saved_tensors
            return torch.ops.aten._cudnn_attention_backward(
                *(grads[0], q, k, v, output, normaliser, seed, offset, None),
                *(bounds, bounds, length, length, 0.0, True),
                scale=shape.head_dim**-0.5,
            )

    ways: dict[str, tuple[Callable[..., Any], list[Any]]] = {
        "SDPA as it comes": (
            lambda q, k, v: sdpa(q, k, v, is_causal=True, enable_gqa=True),
            lanes(own, shared, shared),
        ),
        "SDPA, cuDNN first": (by_cudnn, lanes(own, shared, shared)),
        "SDPA, cuDNN first, heads repeated": (by_cudnn, lanes(own, own, own)),
        "packed by cuDNN": (PackedByCudnn.apply, packed(own, shared, shared)),
        "documents": (
            lambda q, k, v: document_attention(q, k, v, documents),
            packed(own, shared, shared),
        ),
    }
    flops = 7 * length**2 * own * shape.head_dim * rows
    for name, (attend, inputs) in ways.items():
        title = f"attention, {rows} x {length}, {name}"
        try:
            direction = torch.randn_like(attend(*inputs))
            for count in (3, 10):
                began = now()
                for _ in range(count):
                    torch.autograd.grad(attend(*inputs), inputs, direction)
                seconds = (now() - began) / count
        except Exception as error:  # A way that this version of torch does not go.
            print(f"{title}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        rate = flops / seconds / 1e12
        print(f"{title}: {seconds * 1e3:.2f} ms a layer, {rate:.0f} TFLOP/s", flush=True)


@contextlib.contextmanager
def arranged(variant: Variant) -> Iterator[None]:
    """The package with what the variant switches off switched off."""
    from workings.objectives import logprobs
    from workings.training import lanes, step

    nothing = contextlib.nullcontext()
    with contextlib.ExitStack() as stack:
        if not variant.copies:
            stack.enter_context(mock.patch.object(step, "compute_weights", return_value=nothing))
        if variant.head == "torch":
            stack.enter_context(mock.patch.object(logprobs, "has_triton", return_value=False))
        if variant.head == "recomputed":
            from workings.objectives import logits_memory

            stack.enter_context(mock.patch.object(logits_memory, "KEPT_SHARE", 0.0))
        if variant.rows == "documents":
            stack.enter_context(mock.patch.object(lanes, "MOST_PADDING", -1.0))
        yield


def kind_of(kernel: str) -> str:
    """What a kernel is for, by its name.

    >>> kind_of("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"), kind_of("Memcpy HtoD (Pinned)")
    ('products', 'copies')
    """
    name = kernel.lower()
    for kind, words in (
        ("attention", ("flash", "fmha", "sdpa", "attention", "cudnn_generated")),
        ("vocabulary scores", ("_score_kernel", "_gradient_kernel")),
        ("products", ("gemm", "nvjet", "cutlass", "xmma", "splitk")),
        ("optimizer", ("adam", "lpnorm", "multi_tensor_apply")),
        ("copies", ("memcpy", "memset", "direct_copy")),
    ):
        if any(word in name for word in words):
            return kind
    return "other"
