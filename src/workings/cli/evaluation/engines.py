"""The engines of an evaluation: one in this process, or one in a process on each device."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import torch

from workings.cli.build import Policy
from workings.cli.engines import EngineBuild, build_engine, with_weights
from workings.config.evaluation import ALL_CARDS, EvalConfig
from workings.errors import ConfigError
from workings.evaluation.sampling import PART_ROWS
from workings.models.weights import named_full_weights
from workings.rollout.engine import Engine
from workings.rollout.process_engine import ProcessEngine
from workings.rollout.select import CUDA_BATCH


def evaluation_devices(config: EvalConfig) -> tuple[str, ...]:
    """The devices that samples are drawn on, by processes of their own; empty: in this one.

    ConfigError for a card that is not there.
    """
    cards = torch.cuda.device_count()
    devices = config.devices
    if devices == (ALL_CARDS,):
        devices = tuple(f"cuda:{number}" for number in range(cards))
        if not devices:
            raise ConfigError(
                "devices=all: torch sees no card here", hint="devices=[cpu,cpu], or leave it out"
            )
    for name in devices:
        number = name.partition(":")[2]
        if name.startswith("cuda") and int(number or 0) >= cards:
            raise ConfigError(
                f"devices={list(devices)}: {name} is not there; torch sees {cards} cards",
                hint="cards are counted from 0 among those of CUDA_VISIBLE_DEVICES",
            )
    return devices


def build_engines(
    config: EvalConfig, policy: Policy, devices: Sequence[str]
) -> tuple[list[Engine], str]:
    """Engines with the policy's weights, and one line on which and why."""
    if not devices:
        engine, line = build_engine(config.engine, policy)
        # As training does before each of its evaluations.
        engine.load_weights(0, named_full_weights(policy.model))
        return [engine], line
    on_cpu = sum(name == "cpu" for name in devices)
    threads = config.num_threads or max(1, torch.get_num_threads() // max(1, on_cpu))

    def start(device: str) -> Engine:
        build = EngineBuild(
            engine=config.engine, model=config.model, device=device, num_threads=threads
        )
        return ProcessEngine(build)

    with ExitStack() as closing, ThreadPoolExecutor(len(devices)) as pool:
        starting = [pool.submit(start, device) for device in devices]
        engines = []
        for one in starting:
            engines.append(one.result())
            closing.callback(engines[-1].close)
        for engine in engines:
            with_weights(engine, policy)
        closing.pop_all()
    listed = ", ".join(devices)
    return engines, f"engine: {config.engine.name} in {len(devices)} processes, on {listed}"


def rows_of_part(config: EvalConfig, device_type: str, *, num_rows: int, num_engines: int) -> int:
    """Rows that are sampled and stored together: every engine has a share at least."""
    if config.part_rows is not None:
        return config.part_rows
    return max(1, min(usual_part_rows(device_type), -(-num_rows // num_engines)))


def usual_part_rows(device_type: str) -> int:
    """Rows of a part where nothing else is said: what the device decodes at once."""
    return PART_ROWS if device_type == "cpu" else CUDA_BATCH
