"""GRPO through the library: problems, an engine, a reward, the loop, and a folder with the result.

python examples/train_grpo.py smollm2 --steps 2 --output runs/example-grpo
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from workings import (
    Checkpointer,
    Grader,
    PromptSampler,
    Recorder,
    RunPaths,
    SamplingParams,
    StopRequest,
    TransformersEngine,
    build_reward,
    compose,
    dump_yaml,
    encode_prompts,
    load_model,
    load_problems,
    load_template,
    read_metrics,
    train_grpo,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on sums of two digits, and print the reward of every step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder, hub id or known name")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("runs/example-grpo"))
    options = parser.parse_args(arguments)

    config = compose(
        ["quickstart"],
        [
            f"model.name_or_path={options.model}",
            f"max_steps={options.steps}",
            "prompts_per_step=2",
            "num_generations=4",
        ],
        kind="grpo",
    )
    loaded = load_model(options.model)
    template = load_template(config.data.template)
    task = {"num_problems": 40, "terms": 2, "operands": [1, 9]}
    problems = load_problems("arithmetic", options=task, seed=config.seed).items
    prompts = encode_prompts(problems, template, loaded.tokenizer).items
    recorder = Recorder(options.output)
    checkpointer = Checkpointer(
        RunPaths(folder=options.output),
        loaded.tokenizer,
        recorder,
        kind="grpo",
        config_text=dump_yaml(config),
    )
    with recorder, Grader() as grader:
        train_grpo(
            config,
            model=loaded.model,
            engine=TransformersEngine(
                loaded.model, loaded.tokenizer, eos_token_ids=loaded.eos_token_ids
            ),
            sampler=PromptSampler(
                prompts, prompts_per_step=config.prompts_per_step, seed=config.seed
            ),
            sampling=SamplingParams(temperature=1.0, max_tokens=40, stop=template.stop),
            reward=build_reward("r1_zero", grader=grader),
            recorder=recorder,
            checkpointer=checkpointer,
            stop=StopRequest(),
            autocast=None if loaded.compute_dtype == torch.float32 else loaded.compute_dtype,
            pad_id=loaded.tokenizer.pad_token_id,
        )
    for row in read_metrics(options.output / "metrics.jsonl"):
        print(f"step {row['step']}: reward {row['train/reward']:.3f}")
    print(f"the model is in {options.output / 'final'}")


if __name__ == "__main__":
    main()
