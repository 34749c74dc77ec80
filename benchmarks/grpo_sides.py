"""The sides of benchmarks/grpo_step.py: `train_grpo` of this package, and TRL's GRPOTrainer.

Each runs its own training loop as it is, in a process of its own, and is stopped at the end of
every step until the parent asks for the next. `step` enters the loop; what it answers, and what
it waits for, goes through `Steps`.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from grpo_cases import Case, even_ids

MOST_STEPS = 64
"""Prompts are drawn for so many steps; nobody waits for more."""
LEARNING_RATE = 1e-6
PHASES = ("rollout", "reward", "score", "train", "sync", "other")
Phases = dict[str, float]


class Ended(BaseException):
    """The parent wants no more steps. No Exception, so that no loop takes it for a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: seconds from the word to go until its end, and how they were spent."""

    seconds: float
    phases: Phases


@dataclass(slots=True)
class Steps:
    """The clock of a loop that is stopped after every step.

    Attributes:
        wait: gives the finished step to whoever asked and returns when the next one is wanted;
            False ends the loop.
        rest: the phase that all seconds belong to which nobody booked.
        phases: seconds of the step under way.
    """

    wait: Callable[[Step], bool]
    rest: str = "other"
    phases: Phases = field(default_factory=dict)
    started: float = 0.0

    def begin(self) -> None:
        """The word to go."""
        self.phases = {}
        self.started = now()

    def add(self, phase: str, seconds: float) -> None:
        """Books seconds of a phase."""
        self.phases[phase] = self.phases.get(phase, 0.0) + seconds

    def finish(self) -> None:
        """Ends the step, and begins the next when it is wanted; raises Ended when none is."""
        seconds = now() - self.started
        phases = {name: self.phases.get(name, 0.0) for name in PHASES}
        phases[self.rest] += max(0.0, seconds - sum(phases.values()))
        if not self.wait(Step(seconds=seconds, phases=phases)):
            raise Ended
        self.begin()


def now() -> float:
    """Seconds, with all work of the card done."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


class Side:
    """A worker that answers `step` from inside its loop; see workers.serve."""

    def __init__(self, train: Callable[[Case, Steps, Mapping[str, Any]], Any]) -> None:
        self._train = train
        self._connection: Any = None
        self._steps = Steps(wait=self._wait)

    def attach(self, connection: Any) -> None:
        """Where answers go while the loop runs."""
        self._connection = connection

    def step(self, case: Case, settings: Mapping[str, Any]) -> None:
        """Enters the loop: the first step, and every later one until the parent says None."""
        self._train(case, self._steps, settings)

    def _wait(self, done: Step) -> bool:
        self._connection.send((True, done))
        return self._connection.recv() is not None

    def close(self) -> None:
        """The process ends with all it holds."""


def ours() -> Side:
    """The side of this package."""
    return Side(train_ours)


def trl() -> Side:
    """TRL's side."""
    return Side(train_trl)


# --------------------------------------------------------------------------------------------- ours


def train_ours(case: Case, steps: Steps, settings: Mapping[str, Any]) -> None:
    """`train_grpo` on the case until `steps` ends it.

    Settings: folder (of the model), out, engine, device, share (of the card, for the cache),
    overrides (of the run's configuration).
    """
    import torch

    from workings.config.grpo import GRPOConfig
    from workings.data.sampler import PromptSampler
    from workings.models.load import load_model
    from workings.rewards.components import Component
    from workings.rewards.reward import Reward
    from workings.rollout.engine import SamplingParams
    from workings.training.checkpointer import Checkpointer, RunPaths
    from workings.training.grpo import train_grpo
    from workings.training.stop import StopRequest

    config = GRPOConfig.model_validate(run_settings(case, settings))
    loaded = load_model(str(settings["folder"]), device=str(settings["device"]))
    autocast = None if loaded.compute_dtype == torch.float32 else loaded.compute_dtype
    tokenizer = loaded.tokenizer
    with stepped_recorder(Path(settings["out"]), steps) as recorder:
        steps.begin()
        train_grpo(
            config,
            model=loaded.model,
            engine=our_engine(loaded, settings),
            sampler=PromptSampler(prompts_of(case), prompts_per_step=case.prompts, seed=0),
            sampling=SamplingParams(temperature=1.0, max_tokens=case.output_tokens),
            reward=Reward(
                settings={},
                components=(Component(name="even_ids", function=even_ids),),
                gold_fault=lambda gold: None,
            ),
            recorder=recorder,
            checkpointer=Checkpointer(
                RunPaths(folder=Path(settings["out"])),
                tokenizer,
                recorder,
                kind="grpo",
                config_text="",
                resume=None,
                save_total_limit=1,
            ),
            stop=StopRequest(),
            autocast=autocast,
            pad_id=tokenizer.pad_token_id,
        )


def run_settings(case: Case, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The run's configuration: all defaults but the sizes, and what is overridden."""
    run: dict[str, Any] = {
        "name": "grpo_step",
        "model": {"name_or_path": str(settings["folder"])},
        "data": {"train": {"path": "random"}},
        "prompts_per_step": case.prompts,
        "num_generations": case.samples,
        "max_steps": MOST_STEPS,
        "sampling": {"max_tokens": case.output_tokens},
        "optimizer": {"learning_rate": LEARNING_RATE},
    }
    for name, value in settings.get("overrides", {}).items():
        at = run
        *sections, key = name.split(".")
        for section in sections:
            at = at.setdefault(section, {})
        at[key] = value
    return run


def prompts_of(case: Case) -> list[Any]:
    """The case's prompts as the loop takes them."""
    from shapes import text_of

    from workings.types import Problem, Prompt

    return [
        Prompt(
            problem=Problem(id=f"random/{number}", question=text_of(ids), answer="0"),
            ids=ids,
            text=text_of(ids),
        )
        for number, ids in enumerate(case.prompt_ids(MOST_STEPS))
    ]


def our_engine(loaded: Any, settings: Mapping[str, Any]) -> Any:
    """The engine, with no token that ends a completion."""
    if settings["engine"] == "paged":
        from workings.rollout.paged.engine import PagedEngine

        return PagedEngine(
            loaded.model,
            loaded.tokenizer,
            eos_token_ids=(),
            dtype=loaded.compute_dtype,
            memory_utilization=settings["share"],
        )
    from workings.rollout.transformers_engine import TransformersEngine

    return TransformersEngine(loaded.model, loaded.tokenizer, eos_token_ids=())


def stepped_recorder(folder: Path, steps: Steps) -> Any:
    """A recorder that writes metrics, no rollouts, and stops the loop after every step."""
    from workings.tracking.recorder import Recorder

    class SteppedRecorder(Recorder):
        def record(self, step: int, metrics: Mapping[str, float], prefix: Any = "train") -> None:
            for name, value in metrics.items():
                if name.startswith("timing/"):
                    phase = name.removeprefix("timing/")
                    steps.add(phase if phase in PHASES else "other", value)
            super().record(step, metrics, prefix)

        def record_rollouts(self, step: int, groups: Any, *, advantages: Any = None) -> None:
            super().record_rollouts(step, groups, advantages=advantages)
            steps.finish()

    return SteppedRecorder(folder, save_rollouts_every=0)


# ---------------------------------------------------------------------------------------------- TRL


def train_trl(case: Case, steps: Steps, settings: Mapping[str, Any]) -> None:
    """TRL's GRPOTrainer with vLLM in its process, on the case, until `steps` ends it.

    Settings: folder, out, tuned, share (of the card, for vLLM), sleeps.
    """
    from datasets import Dataset
    from shapes import load_tokenizer, text_of
    from trl import GRPOConfig, GRPOTrainer

    warnings.filterwarnings("ignore", category=FutureWarning)
    texts = [text_of(ids) for ids in case.prompt_ids(MOST_STEPS)]
    trainer = GRPOTrainer(
        model=str(settings["folder"]),
        reward_funcs=even_ids,
        args=GRPOConfig(**trl_settings(case, **settings)),
        train_dataset=Dataset.from_dict({"prompt": texts}),
        processing_class=load_tokenizer(Path(settings["folder"])),
        callbacks=[_stopping(steps)],
    )
    _book(trainer.vllm_generation, "generate", steps, "rollout")
    _book(trainer.vllm_generation, "sync_weights", steps, "sync")
    _book(trainer, "_calculate_rewards", steps, "reward")
    _book(trainer, "_generate_and_score_completions", steps, "score", nested=True)
    steps.rest = "train"
    steps.begin()
    trainer.train()


def trl_settings(
    case: Case, *, folder: str, out: str, tuned: bool, share: float, sleeps: bool
) -> dict[str, Any]:
    """Arguments of `trl.GRPOConfig`: what the case fixes, and what tuning changes."""
    rows = case.rows if tuned else 8
    fixed = {
        "output_dir": out,
        "max_steps": MOST_STEPS,
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "adam_beta2": 0.95,
        "max_grad_norm": 1.0,
        "num_generations": case.samples,
        "max_completion_length": case.output_tokens,
        "temperature": 1.0,
        "beta": 0.0,
        "generation_kwargs": {"ignore_eos": True},
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": case.completions // rows,
        "use_vllm": True,
        "vllm_mode": "colocate",
        "save_strategy": "no",
        "report_to": "none",
        "logging_steps": 1,
        "disable_tqdm": True,
        "seed": 0,
    }
    if not tuned:
        return fixed
    return fixed | {
        "generation_kwargs": {"ignore_eos": True, "detokenize": False},
        "gradient_checkpointing": False,
        "use_liger_kernel": True,
        "vllm_importance_sampling_correction": False,
        "vllm_gpu_memory_utilization": share,
        "vllm_enable_sleep_mode": sleeps,
        "vllm_max_model_length": case.longest + 16,
        "dataloader_num_workers": 0,
    }


def trl_versions() -> dict[str, str]:
    """Of TRL and of the vLLM it uses."""
    return {name: version(name) for name in ("trl", "vllm")}


def _stopping(steps: Steps) -> Any:
    from transformers import TrainerCallback

    class Stopping(TrainerCallback):
        """Ends a step where TRL says that it has ended."""

        def on_step_end(self, *arguments: Any, **keywords: Any) -> None:
            steps.finish()

    return Stopping()


def _book(owner: Any, name: str, steps: Steps, phase: str, *, nested: bool = False) -> None:
    """Has the seconds of a method booked; with `nested`, less those booked inside it."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def timed(*arguments: Any, **keywords: Any) -> Any:
        begun, inside = now(), sum(steps.phases.values())
        result = method(*arguments, **keywords)
        booked = sum(steps.phases.values()) - inside if nested else 0.0
        steps.add(phase, now() - begun - booked)
        return result

    setattr(owner, name, timed)
