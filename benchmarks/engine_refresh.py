"""What it costs to hand the engine new weights, and what it gives back while it sleeps.

    python benchmarks/engine_refresh.py [--shape 1.5B] [--device cuda] [--repeats 100] [--record]

Random weights of the shape: a refresh of all parameters, and of a LoRA policy, whose adapter is
merged on the way; after all repeats the base weights must be what they were, bit for bit. Then a
rollout, sleep and wake.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from measured import RESULTS, Row, command_line, document, name_of, write
from shapes import SHAPES, write_model

from workings.models.load import LoadedModel, load_model
from workings.models.lora import add_lora
from workings.models.weights import base_model, named_full_weights
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.paged.engine import PagedEngine

RANK = 32
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def synchronize(device: torch.device) -> None:
    """Waits for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(action: Callable[[int], None], device: torch.device, repeats: int) -> list[float]:
    """Wall time of every call, the device's work included; one call before is not timed."""
    action(0)
    times = []
    for number in range(1, repeats + 1):
        synchronize(device)
        started = time.perf_counter()
        action(number)
        synchronize(device)
        times.append(time.perf_counter() - started)
    return times


def refresh_row(name: str, times: Sequence[float]) -> Row:
    """Median and range of refreshes, in milliseconds."""
    return {
        "name": name,
        "value": 1000 * statistics.median(times),
        "unit": "ms",
        "low": 1000 * min(times),
        "high": 1000 * max(times),
        "n": len(times),
        "note": "median and range",
    }


def bits(model: Any) -> dict[str, torch.Tensor]:
    """A copy of every base weight."""
    return {
        name: parameter.detach().clone()
        for name, parameter in base_model(model).named_parameters()
        if ".lora_" not in name
    }


def engine_of(loaded: LoadedModel, model: Any) -> PagedEngine:
    """The engine under test, in bfloat16."""
    return PagedEngine(
        model,
        loaded.tokenizer,
        eos_token_ids=(),
        dtype=torch.bfloat16,
        memory_utilization=0.4,
    )


def measure(loaded: LoadedModel, *, shape: str, repeats: int) -> list[Row]:
    """All rows."""
    model, device = loaded.model, loaded.device
    engine = engine_of(loaded, model)

    def full(version: int) -> None:
        engine.load_weights(version, named_full_weights(model))

    rows = [refresh_row(f"full refresh, {shape}", seconds_of(full, device, repeats))]
    rows += sleep_rows(engine, device, loaded.model.config.vocab_size)
    adapted = add_lora(model, rank=RANK, alpha=2 * RANK, dropout=0.0, targets=list(TARGETS), seed=0)
    torch.manual_seed(1)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.01)
    before = bits(adapted)

    def merged(version: int) -> None:
        engine.load_weights(version, named_full_weights(adapted))

    times = seconds_of(merged, device, repeats)
    rows.append(refresh_row(f"LoRA refresh, rank {RANK} on all linear layers, {shape}", times))
    after = bits(adapted)
    changed = sum(not torch.equal(before[name], after[name]) for name in before)
    rows.append(
        {
            "name": f"base weights changed by {repeats} LoRA refreshes, {shape}",
            "value": changed,
            "n": len(before),
        }
    )
    engine.close()
    return rows


def sleep_rows(engine: PagedEngine, device: torch.device, vocabulary: int) -> list[Row]:
    """Memory that sleep returns, of what the cache takes, and how long sleep and wake take."""
    if device.type != "cuda":
        return []
    free_before = torch.cuda.mem_get_info(device)[0]
    prompt = tuple(range(10, 10 + min(256, vocabulary - 10)))
    requests = [Request(prompt_ids=prompt, num_samples=8, seed=seed) for seed in range(128)]
    engine.generate(requests, SamplingParams(max_tokens=768))
    torch.cuda.empty_cache()
    free_awake = torch.cuda.mem_get_info(device)[0]
    synchronize(device)
    started = time.perf_counter()
    engine.sleep()
    asleep = time.perf_counter()
    free_asleep = torch.cuda.mem_get_info(device)[0]
    woken = time.perf_counter()
    engine.wake()
    awake = time.perf_counter()
    returned = free_asleep - free_awake
    return [
        {
            "name": "cache memory that sleep returns",
            "value": 100 * returned / engine.cache_bytes,
            "unit": "%",
            "note": f"{returned / 2**30:.2f} of {engine.cache_bytes / 2**30:.2f} GiB; "
            f"{(free_before - free_asleep) / 2**30:.2f} GiB stay for graphs and workspaces",
        },
        {"name": "sleep", "value": 1000 * (asleep - started), "unit": "ms"},
        {"name": "wake", "value": 1000 * (awake - woken), "unit": "ms"},
    ]


def main(arguments: Sequence[str]) -> int:
    """Measures and writes; 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="1.5B")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--weights", choices=["float32", "arithmetic"], default="float32")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("runs/engine_refresh"))
    parser.add_argument("--record", action="store_true", help="write to benchmarks/results too")
    parser.add_argument("--commit", help="to record where there is no repository")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = write_model(SHAPES[given.shape], Path(folder) / "model")
        loaded = load_model(str(path), device=given.device, weights=given.weights)
    rows = measure(loaded, shape=given.shape, repeats=given.repeats)
    for row in rows:
        print(row, flush=True)
    content = document(
        "engine_refresh",
        rows,
        command=command_line("benchmarks/engine_refresh.py", arguments),
        commit=given.commit,
        device={"device": name_of(loaded.device)},
        notes=[
            f"The policy's weights are {base_model(loaded.model).dtype}, the engine's bfloat16."
        ],
    )
    write(given.out / "engine_refresh.json", content)
    if given.record:
        write(RESULTS / "engine_refresh.json", content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
