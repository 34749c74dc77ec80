"""An expert iteration run, from a resolved configuration to a trained model in a folder."""

from __future__ import annotations

from pathlib import Path

from workings.cli.build import build_sampling, problems_at, set_threads, split_problems
from workings.cli.runs import open_parts, validation_evaluator
from workings.config.expert_iteration import ExpertIterationConfig
from workings.data.sampler import PromptSampler
from workings.seeds import derive_seed
from workings.training.expert_iteration import train_expert_iteration
from workings.training.kept import KeptFiles
from workings.training.progress import TrainResult

KEPT = "kept"


def run_expert_iteration(
    config: ExpertIterationConfig, *, resume: str | None = None
) -> tuple[TrainResult, Path]:
    """The result of an expert iteration run, and the folder of its final model."""
    set_threads(config.num_threads)
    with open_parts(config, resume=resume, total_steps=0) as parts:
        log = parts.recorder.log
        problems = problems_at(
            config.data.train,
            seed=config.seed,
            grader=parts.grader,
            bad_gold=config.data.bad_gold,
            log=log,
        ).items
        train, held_out = split_problems(config.data, problems, seed=config.seed)
        sampler = PromptSampler(
            parts.prompting.prompts(train, log, what="training prompts"),
            prompts_per_step=config.questions_per_iteration,
            seed=derive_seed(config.seed, "order"),
        )
        result = train_expert_iteration(
            config,
            model=parts.policy.model,
            engine=parts.engine,
            sampler=sampler,
            sampling=build_sampling(config.sampling, parts.prompting.template),
            reward=parts.reward,
            recorder=parts.recorder,
            checkpointer=parts.checkpointer,
            kept_files=KeptFiles(parts.paths.folder / KEPT),
            stop=parts.stop,
            evaluate=validation_evaluator(config, parts, held_out),
            autocast=parts.policy.autocast,
            pad_id=parts.policy.pad_id,
        )
        return result, parts.paths.final
