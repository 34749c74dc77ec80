"""SFT through the library: rows, encoding, the loop, and a folder with the result.

python examples/train_sft.py smollm2 --steps 2 --output runs/example-sft
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from workings import (
    BatchSampler,
    Checkpointer,
    Recorder,
    RunPaths,
    StopRequest,
    compose,
    dump_yaml,
    encode_demonstrations,
    load_demonstrations,
    load_model,
    load_template,
    read_metrics,
    train_sft,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on sums of two digits, and print the loss of every step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder, hub id or known name")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("runs/example-sft"))
    options = parser.parse_args(arguments)

    config = compose(
        ["quickstart"],
        [f"model.name_or_path={options.model}", f"max_steps={options.steps}", "batch_size=8"],
        kind="sft",
    )
    loaded = load_model(options.model)
    task = {"num_problems": 40, "terms": 2, "operands": [1, 9]}
    rows = load_demonstrations("arithmetic", options=task, seed=config.seed).items
    encoded = encode_demonstrations(rows, load_template("think"), loaded.tokenizer).items
    recorder = Recorder(options.output)
    checkpointer = Checkpointer(
        RunPaths(folder=options.output),
        loaded.tokenizer,
        recorder,
        kind="sft",
        config_text=dump_yaml(config),
    )
    with recorder:
        train_sft(
            config,
            model=loaded.model,
            examples=BatchSampler(encoded, batch_size=config.batch_size, seed=config.seed),
            recorder=recorder,
            checkpointer=checkpointer,
            stop=StopRequest(),
            autocast=None if loaded.compute_dtype == torch.float32 else loaded.compute_dtype,
            pad_id=loaded.tokenizer.pad_token_id,
        )
    for row in read_metrics(options.output / "metrics.jsonl"):
        print(f"step {row['step']}: loss {row['train/loss']:.3f}")
    print(f"the model is in {options.output / 'final'}")


if __name__ == "__main__":
    main()
