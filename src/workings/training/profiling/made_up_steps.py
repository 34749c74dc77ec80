"""Optimizer steps of a run's own loop over made-up rows of one length: what a step costs.

What is trained on is random, and everything else is the run's: model, objective, reference,
optimizer, layout. Every step has two microbatches at least, since the peak of memory comes when a
microbatch is computed while the gradients of another are held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from workings.config.dpo import DPOConfig
from workings.config.expert_iteration import ExpertIterationConfig
from workings.config.grpo import GRPOConfig
from workings.config.sft import SFTConfig
from workings.data.encoding import EncodedDemonstration, EncodedPair
from workings.models.weights import base_model
from workings.rollout.engine import SamplingParams
from workings.seeds import derive_seed
from workings.tracking.recorder import Recorder
from workings.training.checkpointer import Checkpointer, RunPaths
from workings.training.distributed import Ranks
from workings.training.dpo import train_dpo
from workings.training.draw import Drawn
from workings.training.forward import choose_layout
from workings.training.layers import prepare_layers
from workings.training.learn import (
    begin_step,
    credit_batch,
    open_learner,
    pack_batch,
    update_policy,
)
from workings.training.optim import configured_optimizer, set_learning_rate
from workings.training.packing import TrainRow, pack, step_totals
from workings.training.state import TrainerState
from workings.training.step import policy_step
from workings.training.stop import StopRequest
from workings.training.supervised_loss import supervised_loss
from workings.types import Demonstration, PreferencePair, Problem, Prompt, Rollout, RolloutGroup

TrainingConfig = SFTConfig | GRPOConfig | ExpertIterationConfig | DPOConfig
MICROBATCHES = 2
_PROMPT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What steps are made of, and how they run.

    Attributes:
        num_rows: in a microbatch; in DPO a row is one response, so the number is even.
        length: tokens of every row, its prompt included.
        autocast, pad_id: as the loops take them.
        after_step: called after every step.
    """

    num_rows: int
    length: int
    num_steps: int
    autocast: torch.dtype | None = None
    pad_id: int = 0
    after_step: Callable[[], None] = lambda: None


def made_up_steps(config: TrainingConfig, model: nn.Module, sizes: Sizes) -> None:
    """Train `model` in place with steps of these sizes, whatever the run's own batches are.

    Raises whatever a step raises where memory runs out.
    """
    batch = config.batch.model_copy(
        update={
            "microbatch_tokens": sizes.num_rows * sizes.length,
            "microbatch_rows": sizes.num_rows,
            "skip_zero_advantage": False,
        }
    )
    if isinstance(config, GRPOConfig):
        groups = math.ceil(MICROBATCHES * sizes.num_rows / config.num_generations)
        update = {"batch": batch, "prompts_per_step": groups, "train_batch_size": None}
        _policy_steps(config.model_copy(update=update), model, sizes)
    elif isinstance(config, DPOConfig):
        pairs = max(2, MICROBATCHES * sizes.num_rows // 2)
        never = config.checkpoint.model_copy(update={"every_steps": 0})
        update = {"batch": batch, "batch_size": pairs, "checkpoint": never, "max_seconds": None}
        _preference_steps(config.model_copy(update=update), model, sizes)
    else:
        _supervised_steps(config.model_copy(update={"batch": batch}), model, sizes)


def _ids(model: nn.Module, count: int, *, seed: int) -> tuple[int, ...]:
    vocabulary = base_model(model).get_input_embeddings().weight.shape[0]
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(vocabulary, (count,), generator=generator).tolist())


def _prompt(model: nn.Module, length: int, number: int) -> Prompt:
    """A short prompt, so that rows which share it are hardly cheaper than rows which do not."""
    return Prompt(
        problem=Problem(id=str(number), question="", answer="0"),
        ids=_ids(model, min(_PROMPT, length // 2), seed=number),
        text="",
    )


def _supervised_steps(
    config: SFTConfig | ExpertIterationConfig, model: nn.Module, sizes: Sizes
) -> None:
    optimizer = _optimizer(config, model)
    prepare_layers(
        model,
        checkpointing=config.batch.activation_checkpointing,
        kernels=config.model.kernels,
    )
    layout = choose_layout(model, config.batch.layout, grouped=False, autocast=sizes.autocast)
    prompt = _prompt(model, sizes.length, 0)
    size = sizes.length - len(prompt.ids)
    rows = [
        TrainRow(
            key=key,
            group=key,
            prompt_ids=prompt.ids,
            response_ids=_ids(model, size, seed=key),
            mask=[True] * size,
        )
        for key in range(MICROBATCHES * sizes.num_rows)
    ]
    totals = step_totals(rows, Ranks())
    for _ in range(sizes.num_steps):
        policy_step(
            model,
            optimizer,
            pack(
                rows,
                layout=layout,
                max_tokens=config.batch.settled_tokens,
                max_rows=config.batch.microbatch_rows,
                pad_id=sizes.pad_id,
                device=next(model.parameters()).device,
            ),
            supervised_loss(totals, loss=config.loss, normalize_constant=config.normalize_constant),
            max_grad_norm=config.optimizer.max_grad_norm,
            autocast=sizes.autocast,
        )
        sizes.after_step()


def _optimizer(
    config: SFTConfig | ExpertIterationConfig, model: nn.Module
) -> torch.optim.Optimizer:
    rates = config.optimizer
    optimizer = configured_optimizer(model, rates)
    set_learning_rate(optimizer, rates.learning_rate)
    return optimizer


def _policy_steps(config: GRPOConfig, model: nn.Module, sizes: Sizes) -> None:
    components = {"right": 1.0, "short": 0.5}
    learner = open_learner(
        config,
        model,
        sampling=SamplingParams(temperature=config.sampling.temperature, max_tokens=sizes.length),
        reward_weights=components,
        autocast=sizes.autocast,
        pad_id=sizes.pad_id,
        ranks=Ranks(),
    )
    objective = config.objective.resolve()
    state = TrainerState(kind="grpo")
    groups = [
        _group(
            config.num_generations,
            _prompt(model, sizes.length, number),
            model,
            sizes.length,
            guided=objective.num_off != 0,
        )
        for number in range(config.prompts_per_step)
    ]
    baselines = [0.5] * len(groups) if objective.advantage == "remax" else None
    drawn = Drawn(groups=groups, cursor=0, baselines=baselines)
    for _ in range(sizes.num_steps):
        plan = begin_step(objective, state, seed=config.seed)
        credit = credit_batch(learner, plan, drawn, controllers=state.controllers)
        updates = pack_batch(learner, plan, groups, credit)
        state = update_policy(learner, plan, updates, state).state
        sizes.after_step()


def _group(
    num_generations: int, prompt: Prompt, model: nn.Module, length: int, *, guided: bool
) -> RolloutGroup:
    size = length - len(prompt.ids)
    rollouts = []
    for number in range(num_generations):
        from_teacher = guided and number == 0
        reward = float(number % 2)
        rollouts.append(
            Rollout(
                ids=_ids(model, size, seed=derive_seed(0, prompt.problem.id, number) % 2**31),
                sampling_logprobs=[math.nan if from_teacher else -1.0] * size,
                kept_mass=[1.0] * size,
                mask=[True] * size,
                off_policy=[from_teacher] * size,
                text="",
                finish_reason="eos",
                weight_version=-1 if from_teacher else 0,
                source="demonstration" if from_teacher else "policy",
                reward=reward,
                components={"right": reward, "short": 1.0 - reward},
            )
        )
    return RolloutGroup(prompt=prompt, rollouts=tuple(rollouts))


def _preference_steps(config: DPOConfig, model: nn.Module, sizes: Sizes) -> None:
    def side(prompt: Prompt, seed: int) -> EncodedDemonstration:
        return EncodedDemonstration(
            demonstration=Demonstration(id=str(seed), question="", response=""),
            prompt=prompt,
            response_ids=_ids(model, sizes.length - len(prompt.ids), seed=seed),
        )

    pairs = []
    for number in range(config.batch_size):
        prompt = _prompt(model, sizes.length, number)
        pair = PreferencePair(id=str(number), question="", chosen="", rejected="")
        sides = side(prompt, 2 * number), side(prompt, 2 * number + 1)
        pairs.append(EncodedPair(pair=pair, chosen=sides[0], rejected=sides[1]))
    recorder = Recorder(None, [_AfterStep(sizes.after_step)])
    nowhere = Checkpointer(
        RunPaths(folder=Path()), None, recorder, kind="dpo", config_text="", at_end=False
    )
    train_dpo(
        config.model_copy(update={"max_steps": sizes.num_steps}),
        model=model,
        pairs=pairs,
        recorder=recorder,
        checkpointer=nowhere,
        stop=StopRequest(),
        autocast=sizes.autocast,
        pad_id=sizes.pad_id,
    )


class _AfterStep:
    """A sink that only notices that a step is over."""

    def __init__(self, after_step: Callable[[], None]) -> None:
        self._after_step = after_step

    def record(self, step: int, kind: str, metrics: Mapping[str, float], *, time: float) -> None:
        if kind == "train":
            self._after_step()

    def truncate_after(self, step: int) -> None:
        """Nothing was kept."""

    def close(self, *, failed: bool = False) -> None:
        """Nothing to write."""
