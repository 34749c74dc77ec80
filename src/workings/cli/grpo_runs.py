"""A GRPO run, from a resolved configuration to a trained model in a folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from workings.cli.build import build_sampling, problems_at, set_threads, split_problems
from workings.cli.off_policy import build_guidance, build_replay
from workings.cli.runs import open_parts, validation_evaluator
from workings.config.grpo import GRPOConfig
from workings.data.sampler import PromptSampler
from workings.seeds import derive_seed
from workings.training.grpo import train_grpo
from workings.training.microbatch_tokens import longest_sampled, settled
from workings.training.one_step_off import train_one_step_off
from workings.training.progress import TrainResult


def run_grpo(config: GRPOConfig, *, resume: str | None = None) -> tuple[TrainResult, Path]:
    """The result of a GRPO run, and the folder of its final model."""
    set_threads(config.num_threads)
    with open_parts(config, resume=resume, total_steps=config.max_steps) as parts:
        log = parts.recorder.log
        if config.model.lora is not None and config.model.lora.dropout > 0:
            parts.recorder.warn(
                "LoRA dropout is on in training and off in sampling, so the two disagree on "
                "log-probabilities (train/logprob_difference); set model.lora.dropout=0"
            )
        problems = problems_at(
            config.data.train,
            seed=config.seed,
            grader=parts.grader,
            bad_gold=config.data.bad_gold,
            log=log,
        ).items
        train, held_out = split_problems(config.data, problems, seed=config.seed)
        prompts = parts.prompting.prompts(train, log, what="training prompts")
        sampling = build_sampling(config.sampling, parts.prompting.template)
        sampler = PromptSampler(
            prompts,
            prompts_per_step=config.prompts_per_step,
            seed=derive_seed(config.seed, "order"),
        )
        guidance = build_guidance(config, parts, train, prompts, sampling)
        # The loop does it too; a replay scores rows with the same number.
        config = settled(
            config,
            parts.policy.model,
            longest_row=longest_sampled(prompts, max_tokens=sampling.max_tokens, guidance=guidance),
            checkpointer=parts.checkpointer,
            recorder=parts.recorder,
            autocast=parts.policy.autocast,
        )
        loop: Callable[..., TrainResult] = train_one_step_off
        if config.schedule == "synchronous":
            loop = partial(train_grpo, replay=build_replay(config, parts, prompts))
        result = loop(
            config,
            model=parts.policy.model,
            engine=parts.engine,
            sampler=sampler,
            sampling=sampling,
            reward=parts.reward,
            recorder=parts.recorder,
            checkpointer=parts.checkpointer,
            stop=parts.stop,
            guidance=guidance,
            evaluate=validation_evaluator(config, parts, held_out),
            autocast=parts.policy.autocast,
            pad_id=parts.policy.pad_id,
        )
        return result, parts.paths.final
