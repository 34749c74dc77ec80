"""The paged engine's kernels on one GPU: right at the shapes of real models, and how fast.

    python benchmarks/engine_kernels.py [--out runs/kernels] [--only check,attention,...]

Everything is compiled first, on all cores. Each kernel is then compared with float64. Times are
medians of replays of a CUDA graph that runs the kernel on several buffers in turn, so that no input
is in the cache because the last call left it there. Bandwidth counts each byte once that has to be
read or written, and stands beside that of a copy on the same card. Everything goes to
OUT/kernels.json; a table without the tilings that lost is printed last.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from triton import AsyncCompileMode
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from workings.rollout.paged.kernels import attention_triton
from workings.rollout.paged.kernels.activation import silu_and_multiply
from workings.rollout.paged.kernels.attention import (
    decode_attention,
    decode_attention_torch,
    splits_for,
)
from workings.rollout.paged.kernels.attention_triton import Tiling, tiling_for
from workings.rollout.paged.kernels.norm import add_rms_norm, add_rms_norm_torch
from workings.rollout.paged.kernels.rope import rotate_and_store, rotate_and_store_torch
from workings.rollout.paged.kernels.sampling import sample, sample_torch

PARTS = ("check", "attention", "tilings", "layers", "sampling")
PAGE = 16
VOCABULARY = 151_936
CACHE_BYTES = 50e6
"""Of the second-level cache of an H100; buffers used in turn are several times as large."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A model, as far as the kernels see it."""

    name: str
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dim: int


SHAPES = {
    "135M": Shape("SmolLM2-135M", 576, 1536, 9, 3, 64),
    "0.5B": Shape("Qwen2.5-0.5B", 896, 4864, 14, 2, 64),
    "1.5B": Shape("Qwen2.5-1.5B", 1536, 8960, 12, 2, 128),
    "3B": Shape("Qwen2.5-3B", 2048, 11008, 16, 2, 128),
}
TILINGS = [
    Tiling(num_keys=keys, num_warps=warps, num_stages=stages)
    for keys, warps, stages in (
        (16, 1, 4),
        (32, 1, 3),
        (32, 1, 4),
        (32, 2, 2),
        (32, 2, 3),
        (32, 2, 4),
        (32, 4, 4),
        (64, 2, 3),
        (64, 4, 1),
        (64, 4, 2),
        (64, 4, 3),
        (64, 4, 4),
        (128, 4, 2),
        (128, 4, 3),
        (128, 8, 2),
        (128, 8, 3),
    )
]


class Report:
    """Rows of the result file, printed as they come.

    Args:
        compiling: True runs what is measured once, without timing or reporting it.
    """

    def __init__(self, *, compiling: bool = False) -> None:
        self.rows: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self._compiling = compiling

    def add(self, name: str, value: float, unit: str, note: str = "") -> None:
        if not self._compiling:
            self.rows.append({"name": name, "value": value, "unit": unit, "note": note})
            print(f"{name:64s} {value:10.4g} {unit:8s} {note}", flush=True)

    def check(self, name: str, error: float, bound: float) -> None:
        """An error that must not be above its bound; NaN is."""
        right = error <= bound
        self.add(f"check: {name}", error, "error", "" if right else f"ABOVE {bound}")
        if not right:
            self.failures.append(name)

    def milliseconds(self, call: Callable[[], object], calls: int = 1, replays: int = 15) -> float:
        """Median time of one of the `calls` calls in `call`, from replays of a CUDA graph."""
        call()
        if self._compiling:
            return 1.0
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        for _ in range(3):
            graph.replay()
        times = []
        for _ in range(replays):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            stop.record()
            stop.synchronize()
            times.append(start.elapsed_time(stop))
        return median(times) / calls


@contextmanager
def compiling_only() -> Iterator[None]:
    """Inside, kernels are compiled side by side and not launched; on leaving, they are ready."""
    launch = JITFunction.run

    def compile_only(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        return launch(self, *arguments, grid=grid, warmup=True, **options)

    JITFunction.run = compile_only
    try:
        pool = ThreadPoolExecutor(os.cpu_count())
        # What does not compile fails where it is used.
        with pool, AsyncCompileMode(pool, ignore_errors=True):
            yield
    finally:
        JITFunction.run = launch


def copies_needed(num_bytes: float, most: int = 24) -> int:
    """Buffers to use in turn so that none is still in the cache when its turn comes."""
    return max(1, min(most, round(6 * CACHE_BYTES / num_bytes)))


def relative(ours: torch.Tensor, exact: torch.Tensor) -> float:
    """Norm of the error over the norm of the exact result."""
    return float((ours.double() - exact).norm() / exact.norm())


# ---------------------------------------------------------------------------------- attention


@dataclass(frozen=True, slots=True)
class Batch:
    """Arguments of decode_attention and the bytes of keys and values that differ."""

    query: torch.Tensor
    caches: list[torch.Tensor]
    table: torch.Tensor
    slots: torch.Tensor
    lengths: torch.Tensor
    num_bytes: float

    def call(self, scale: float, num_splits: int, tiling: Tiling | None) -> None:
        """One call for every cache."""
        for cache in self.caches:
            attention_triton.decode_attention(
                self.query,
                cache[0],
                cache[1],
                self.table,
                self.slots,
                self.lengths,
                scale=scale,
                num_splits=num_splits,
                tiling=tiling,
            )


def batch_of(
    shape: Shape,
    rows: int,
    context: int,
    *,
    shared: int = 0,
    dtype: torch.dtype = torch.bfloat16,
    lengths: torch.Tensor | None = None,
) -> Batch:
    """Sequences of one length in random pages; groups of 8 have their first `shared` keys once."""
    pages_each, shared_pages = -(-context // PAGE), shared // PAGE
    groups = -(-rows // 8)
    num_pages = rows * (pages_each - shared_pages) + groups * shared_pages
    order = torch.randperm(num_pages).int()
    common = order[: groups * shared_pages].view(groups, shared_pages)
    own = order[groups * shared_pages :].view(rows, -1)
    table = torch.cat([common.repeat_interleave(8, dim=0)[:rows], own], dim=1).contiguous()
    size = (2, num_pages, PAGE, shape.kv_heads, shape.head_dim)
    num_bytes = num_pages * PAGE * 2 * shape.kv_heads * shape.head_dim * dtype.itemsize
    caches = [torch.randn(size, dtype=dtype) for _ in range(copies_needed(num_bytes))]
    width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    qkv = torch.randn(rows, width, dtype=dtype)
    if lengths is None:
        lengths = torch.full((rows,), context, dtype=torch.int32)
    return Batch(
        query=qkv.view(rows, -1, shape.head_dim)[:, : shape.heads],
        caches=caches,
        table=table,
        slots=torch.arange(rows, dtype=torch.int32),
        lengths=lengths,
        num_bytes=num_bytes,
    )


def time_attention(
    report: Report,
    name: str,
    shape: Shape,
    batch: Batch,
    num_splits: int,
    tiling: Tiling | None = None,
) -> float:
    """Adds time and bandwidth of one layer; the time in milliseconds."""
    scale = shape.head_dim**-0.5
    calls = len(batch.caches)
    taken = report.milliseconds(lambda: batch.call(scale, num_splits, tiling), calls)
    report.add(name, taken, "ms", f"{batch.num_bytes / taken / 1e9:.2f} TB/s splits {num_splits}")
    return taken


def attention_times(report: Report) -> None:
    """The tilings in use over batch sizes and contexts, private and shared prompts."""
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    for name, rows, context in (
        ("1.5B", 1024, 256),
        ("1.5B", 1024, 768),
        ("1.5B", 1024, 1280),
        ("1.5B", 256, 768),
        ("1.5B", 256, 4096),
        ("1.5B", 64, 256),
        ("1.5B", 64, 768),
        ("1.5B", 64, 4096),
        ("1.5B", 8, 4096),
        ("0.5B", 1024, 768),
        ("3B", 1024, 768),
        ("135M", 1024, 768),
        ("135M", 64, 768),
    ):
        shape = SHAPES[name]
        splits = splits_for(rows, shape.kv_heads, multiprocessors)
        batch = batch_of(shape, rows, context)
        time_attention(report, f"attention {name} {rows} x {context}", shape, batch, splits)
    shape = SHAPES["1.5B"]
    batch = batch_of(shape, 1024, 768, shared=256)
    time_attention(report, "attention 1.5B 1024 x 768, 256 shared by 8", shape, batch, 1)
    # The same sharers, but nowhere near each other in the batch.
    batch.slots.copy_(torch.randperm(1024))
    time_attention(report, "attention 1.5B 1024 x 768, 256 shared, shuffled", shape, batch, 1)
    spread = torch.exp(torch.randn(256) * 0.8 + 6.2).clamp(16, 4096).int()
    batch = batch_of(shape, 256, 4096, lengths=spread)
    useful = float(spread.sum()) * 4 * shape.kv_heads * shape.head_dim
    for splits in (1, 2, 4):
        taken = report.milliseconds(
            lambda splits=splits: batch.call(shape.head_dim**-0.5, splits, None), len(batch.caches)
        )
        note = f"{useful / taken / 1e9:.2f} TB/s splits {splits}"
        report.add("attention 1.5B 256 x log-normal to 4096", taken, "ms", note)


def tiling_times(report: Report) -> None:
    """Every tiling at the main shapes, and every split where rows are few; the best are named."""
    for name, rows, context, splits in (
        ("1.5B", 1024, 768, (1,)),
        ("0.5B", 1024, 768, (1,)),
        ("1.5B", 64, 768, (1, 2, 4, 8)),
        ("1.5B", 256, 768, (1, 2)),
    ):
        shape = SHAPES[name]
        batch = batch_of(shape, rows, context)
        tilings = TILINGS if len(splits) == 1 else [tiling_for(shape.head_dim, torch.bfloat16)]
        best = (float("inf"), "")
        for tiling in tilings:
            for split in splits:
                label = (
                    f"{tiling.num_keys} keys {tiling.num_warps} warps {tiling.num_stages} stages"
                )
                try:
                    taken = time_attention(
                        report,
                        f"tiling {name} {rows} x {context} {label}",
                        shape,
                        batch,
                        split,
                        tiling,
                    )
                except OutOfResources as error:
                    report.add(f"tiling {name} {label}", float("nan"), "ms", str(error))
                    continue
                best = min(best, (taken, f"{label} splits {split}"))
        report.add(f"BEST tiling {name} {rows} x {context}", best[0], "ms", best[1])


# ---------------------------------------------------------------------- norms, rotation, gate


def layer_times(report: Report) -> None:
    """The kernels between the matrix products, at a decode batch and at a prefill."""
    shape = SHAPES["1.5B"]
    for tokens in (1024, 8192):
        size = tokens * shape.hidden * 2
        inputs = [
            torch.randn(2, tokens, shape.hidden).bfloat16() for _ in range(copies_needed(size))
        ]
        weight = torch.randn(shape.hidden).bfloat16()
        taken = report.milliseconds(
            lambda inputs=inputs, weight=weight: [
                add_rms_norm(x, y, weight, 1e-6) for x, y in inputs
            ],
            len(inputs),
        )
        report.add(f"add_rms_norm {tokens}", taken, "ms", f"{4 * size / taken / 1e9:.2f} TB/s")
        size = tokens * shape.feed_forward * 2
        gates = [
            torch.randn(tokens, 2 * shape.feed_forward).bfloat16()
            for _ in range(copies_needed(2 * size))
        ]
        taken = report.milliseconds(
            lambda gates=gates: [silu_and_multiply(gate) for gate in gates], len(gates)
        )
        report.add(f"silu_and_multiply {tokens}", taken, "ms", f"{3 * size / taken / 1e9:.2f} TB/s")
        inputs_of = [rotation_inputs(shape, tokens, torch.bfloat16) for _ in range(4)]
        taken = report.milliseconds(
            lambda inputs_of=inputs_of: [rotate_and_store(**one) for one in inputs_of],
            len(inputs_of),
        )
        size = inputs_of[0]["qkv"].numel() * 2
        report.add(f"rotate_and_store {tokens}", taken, "ms", f"{2 * size / taken / 1e9:.2f} TB/s")


def rotation_inputs(shape: Shape, tokens: int, dtype: torch.dtype) -> dict[str, Any]:
    """Random arguments of rotate_and_store."""
    angles = torch.outer(torch.arange(4096.0), 1e6 ** -torch.linspace(0, 1, shape.head_dim // 2))
    pages = -(-tokens // PAGE)
    cache = torch.zeros(2, pages, PAGE, shape.kv_heads, shape.head_dim, dtype=dtype)
    width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    return {
        "qkv": torch.randn(tokens, width).to(dtype),
        "positions": torch.randint(0, 4096, (tokens,), dtype=torch.int32),
        "places": torch.randperm(pages * PAGE)[:tokens].int(),
        "cos": angles.cos(),
        "sin": angles.sin(),
        "keys": cache[0],
        "values": cache[1],
        "num_heads": shape.heads,
        "num_kv_heads": shape.kv_heads,
    }


# ----------------------------------------------------------------------------------- sampling


DRAWS: dict[str, dict[str, Any]] = {
    "greedy": {"mode": "greedy"},
    "plain": {"mode": "plain"},
    "plain, EOS banned": {"mode": "plain", "banned": [151_643, 151_645]},
    "top_k 50": {"mode": "truncated", "top_k": 50},
    "top_p 0.95": {"mode": "truncated", "top_p": 0.95},
    "min_p 0.05": {"mode": "truncated", "min_p": 0.05},
    "top_k 20 top_p 0.8": {"mode": "truncated", "top_k": 20, "top_p": 0.8},
}


def draw_arguments(rows: int, draw: dict[str, Any]) -> dict[str, Any]:
    """The parameters as `sample` takes them."""
    arguments: dict[str, Any] = {
        "temperature": torch.tensor([draw.get("temperature", 1.0)]),
        "top_k": torch.tensor([draw.get("top_k", 0)], dtype=torch.int32),
        "top_p": torch.tensor([draw.get("top_p", 1.0)]),
        "min_p": torch.tensor([draw.get("min_p", 0.0)]),
        "mode": draw["mode"],
    }
    if "banned" in draw:
        arguments["banned"] = torch.tensor(draw["banned"], dtype=torch.int32)
        arguments["banned_rows"] = torch.ones(rows, dtype=torch.bool)
    return arguments


def logits_of(rows: int, kind: str) -> torch.Tensor:
    """Float32 logits: "peaked" as a language model's, or "open", without likely tokens."""
    logits = torch.randn(rows, VOCABULARY) * (1.0 if kind == "open" else 2.0)
    if kind == "peaked":
        likely = torch.randint(0, VOCABULARY, (rows, 30))
        strength = torch.linspace(0, 4, rows)[:, None] * torch.randn(rows, 30) + 10
        logits.scatter_add_(1, likely, strength)
    return logits


def sampling_times(report: Report) -> None:
    """Every way of drawing, for logits of both kinds and both dtypes."""
    for rows, kind, dtype, names in (
        (1024, "peaked", torch.float32, tuple(DRAWS)),
        (1024, "open", torch.float32, ("plain", "top_k 50", "top_p 0.95")),
        (1024, "peaked", torch.bfloat16, ("plain", "top_p 0.95")),
        (256, "peaked", torch.float32, ("plain", "top_p 0.95")),
        (64, "peaked", torch.float32, ("plain", "top_p 0.95")),
    ):
        logits = logits_of(rows, kind).to(dtype)
        num_bytes = logits.numel() * logits.itemsize
        inputs = [logits, *(logits.clone() for _ in range(copies_needed(num_bytes) - 1))]
        numbers = torch.rand(rows, dtype=torch.float64)
        for name in names:
            arguments = draw_arguments(rows, DRAWS[name])
            taken = report.milliseconds(
                lambda inputs=inputs, numbers=numbers, arguments=arguments: [
                    sample(one, numbers, **arguments) for one in inputs
                ],
                len(inputs),
            )
            label = f"sample {rows} {kind} {str(dtype).removeprefix('torch.')} {name}"
            report.add(label, taken, "ms", f"{num_bytes / taken / 1e9:.2f} TB/s")


# ------------------------------------------------------------------------------------ checks


def check_layers(report: Report) -> None:
    """Norm, gate, rotation and attention of every model against float64."""
    for shape in SHAPES.values():
        for dtype, bound in ((torch.bfloat16, 6e-3), (torch.float32, 1e-5)):
            label = f"{shape.name} {str(dtype).removeprefix('torch.')}"
            x, residual = torch.randn(2, 300, shape.hidden).to(dtype)
            weight = torch.randn(shape.hidden).to(dtype)
            normed, total = add_rms_norm(x, residual, weight, 1e-6)
            exact, _ = add_rms_norm_torch(
                total.double(), torch.zeros_like(total.double()), weight.double(), 1e-6
            )
            report.check(f"add_rms_norm {label}", relative(normed, exact), bound)
            gate_up = torch.randn(300, 2 * shape.feed_forward).to(dtype)
            gate, up = gate_up.double().chunk(2, dim=1)
            exact = torch.nn.functional.silu(gate) * up
            report.check(f"silu {label}", relative(silu_and_multiply(gate_up), exact), bound)
            check_rotation(report, label, shape, dtype, bound)
            check_attention(report, label, shape, dtype, bound)


def check_rotation(
    report: Report, label: str, shape: Shape, dtype: torch.dtype, bound: float
) -> None:
    inputs = rotation_inputs(shape, 300, dtype)
    precise = {
        name: value.double()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for name, value in inputs.items()
    }
    rotate_and_store(**inputs)
    rotate_and_store_torch(**precise)
    for name in ("qkv", "keys", "values"):
        report.check(f"rotate {name} {label}", relative(inputs[name], precise[name]), bound)


def check_attention(
    report: Report, label: str, shape: Shape, dtype: torch.dtype, bound: float
) -> None:
    rows = 48
    lengths = torch.randint(0, 900, (rows,), dtype=torch.int32)
    batch = batch_of(shape, rows, 900, shared=256, dtype=dtype, lengths=lengths)
    batch.slots[3] = -1
    keys, values = batch.caches[0]
    scale = shape.head_dim**-0.5
    others = (batch.table, batch.slots, lengths)
    exact = decode_attention_torch(
        batch.query.double(), keys.double(), values.double(), *others, scale=scale
    )
    for splits in (1, 8):
        ours = decode_attention(batch.query, keys, values, *others, scale=scale, num_splits=splits)
        report.check(f"attention {label} splits {splits}", relative(ours, exact), bound)


def check_sampling(report: Report) -> None:
    """Share of rows whose token differs, and the largest error of logprob and kept mass."""
    rows = 192
    numbers = torch.rand(rows, dtype=torch.float64)
    for dtype in (torch.float32, torch.bfloat16):
        logits = logits_of(rows, "peaked").to(dtype)
        for name, draw in DRAWS.items():
            label = f"{name} {str(dtype).removeprefix('torch.')}"
            arguments = draw_arguments(rows, draw)
            ids, logprobs, mass = sample(logits, numbers, **arguments)
            their_ids, their_logprobs, their_mass = sample_torch(logits, numbers, **arguments)
            same = ids == their_ids
            report.check(f"sample ids {label}", float((~same).float().mean()), 1 / rows + 1e-6)
            error = torch.where(same, logprobs - their_logprobs, 0.0).abs().max()
            report.check(f"sample logprobs {label}", float(error), 1e-5)
            report.check(f"sample mass {label}", float((mass - their_mass).abs().max()), 1e-5)


# --------------------------------------------------------------------------------------- main


def copy_bandwidth(report: Report) -> None:
    """Bytes read and written by a large copy: the most that any kernel here can reach."""
    source = torch.randint(0, 256, (1 << 30,), dtype=torch.uint8)
    target = torch.empty_like(source)
    taken = report.milliseconds(lambda: target.copy_(source))
    report.add("copy of 1 GiB", taken, "ms", f"{2 * source.numel() / taken / 1e9:.2f} TB/s")


def run(parts: Sequence[str], out: Path) -> int:
    """All parts in order; the number of failed checks."""
    torch.manual_seed(0)
    torch.set_default_device("cuda")
    torch.backends.cuda.matmul.allow_tf32 = False
    began = time.time()
    steps: dict[str, list[Callable[[Report], None]]] = {
        "check": [check_layers, check_sampling],
        "attention": [attention_times],
        "tilings": [tiling_times],
        "layers": [layer_times],
        "sampling": [sampling_times],
    }
    with compiling_only():
        for part in parts:
            for step in steps[part]:
                step(Report(compiling=True))
                torch.cuda.empty_cache()
    print(f"-- compiled: {time.time() - began:.0f} s", flush=True)
    report = Report()
    copy_bandwidth(report)
    for part in parts:
        for step in steps[part]:
            step(report)
            torch.cuda.empty_cache()
            print(f"-- {part}: {time.time() - began:.0f} s", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    properties = torch.cuda.get_device_properties(0)
    content = {
        "benchmark": "kernels",
        "command": " ".join(sys.argv),
        "machine": properties.name,
        "versions": {"torch": torch.__version__, "python": sys.version.split()[0]},
        "shapes": {name: asdict(shape) for name, shape in SHAPES.items()},
        "results": report.rows,
    }
    (out / "kernels.json").write_text(json.dumps(content, indent=1) + "\n")
    print_summary(report)
    return len(report.failures)


def print_summary(report: Report) -> None:
    """What to look at first: failures, then the times without the tilings that lost."""
    print("\n" + "-" * 100)
    checks = sum(row["name"].startswith("check: ") for row in report.rows)
    print(f"{checks - len(report.failures)} of {checks} checks passed")
    for name in report.failures:
        print(f"FAILED {name}")
    for row in report.rows:
        if not row["name"].startswith(("check: ", "tiling ")):
            print(f"{row['name']:56s} {row['value']:9.4f} {row['unit']:3s} {row['note']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/kernels"))
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    unknown = set(parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown parts {sorted(unknown)}; there are {', '.join(PARTS)}")
    sys.exit(1 if run(parts, arguments.out) else 0)


if __name__ == "__main__":
    main()
