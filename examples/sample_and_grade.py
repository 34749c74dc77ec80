"""Hops 1 to 3 of a batch: problems to prompts, prompts to groups of samples, samples to rewards.

python examples/sample_and_grade.py smollm2              the model's own answers
python examples/sample_and_grade.py smollm2 --scripted   canned answers, with its tokenizer
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from workings import (
    Engine,
    Grader,
    LoadedModel,
    PromptSampler,
    SamplingParams,
    ScriptedEngine,
    TransformersEngine,
    build_reward,
    collect_groups,
    encode_prompts,
    grade_groups,
    load_model,
    load_problems,
    load_template,
)

CANNED = ("9+9=18 </think> <answer>18</answer>", "hm </think> <answer>17</answer>", "18")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print every sample of two problems with its reward."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder, hub id or known name; its tokenizer makes the ids")
    parser.add_argument("--scripted", action="store_true", help="canned answers, no sampling")
    options = parser.parse_args(arguments)

    loaded = load_model(options.model)
    task = {"num_problems": 20, "terms": 2, "operands": [1, 9]}
    problems = load_problems("arithmetic", split="test", options=task, limit=5, seed=0).items
    prompts = encode_prompts(problems, load_template("think"), loaded.tokenizer).items
    sampler = PromptSampler(prompts, prompts_per_step=2, seed=0)
    batch, cursor = sampler.next_batch(0)

    engine = choose_engine(loaded, scripted=options.scripted)
    sampling = SamplingParams(temperature=1.0, max_tokens=48, stop=("</answer>",))
    with Grader() as grader:
        reward = build_reward("r1_zero", grader=grader)
        groups = collect_groups(engine, batch, sampling, num_samples=3, seed=0)
        groups = grade_groups(groups, reward)
    for group in groups:
        print(f"{group.problem.question} = {group.problem.answer}")
        for rollout in group.rollouts:
            verdict = rollout.grade.verdict if rollout.grade else "-"
            print(f"  reward {rollout.reward}  {verdict:10} {rollout.text!r}")
    print(f"the next batch begins at cursor {cursor}")
    engine.close()


def choose_engine(loaded: LoadedModel, *, scripted: bool) -> Engine:
    """An engine that samples from the model, or one that says what it is told to."""
    if scripted:
        return ScriptedEngine(loaded.tokenizer, CANNED)
    return TransformersEngine(loaded.model, loaded.tokenizer, eos_token_ids=loaded.eos_token_ids)


if __name__ == "__main__":
    main()
