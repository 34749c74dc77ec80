"""The sides of benchmarks/training.py: the loops of this package, and TRL's trainers.

Each lives in a process of its own and holds the card only while it measures. The model has the
shape of a published one and random weights, float32 with bfloat16 arithmetic on both sides; rows
are random ids. The loops run as they are: `train_sft` here, `SFTTrainer.train` there. For the
memory of a GRPO step both get a made-up batch in place of what an engine would have sampled.
"""

from __future__ import annotations

import contextlib
import gc
import math
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from shapes import SHAPES, Shape, model_config, random_prompts

LEARNING_RATE = 1e-6
DENSE_PEAK = 989e12
"""bfloat16 products of an H100 (SXM) a second, as its data sheet says."""
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class SFTCase:
    """Supervised steps on rows of one length."""

    shape: str
    rows: int
    length: int

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.rows * self.length

    @property
    def flops(self) -> float:
        """Of a step, forward and backward, nothing counted twice: 6 for each weight and token, and
        causal attention (2 products, 4 of them backward, half of the square each).

        >>> f"{SFTCase(shape='1.5B', rows=8, length=2048).flops:.3g}"
        '1.6e+14'
        """
        shape = SHAPES[self.shape]
        width = shape.heads * shape.head_dim
        attention = 6 * self.length**2 * width * shape.layers * self.rows
        return 6.0 * shape.num_parameters * self.tokens + attention

    @property
    def title(self) -> str:
        """In words, for the results."""
        return f"{self.shape}, {self.rows} x {self.length:,} tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class GRPOCase:
    """One GRPO update on a group: `samples` rows of `length` tokens with a prompt in common."""

    shape: str
    samples: int
    prompt: int
    length: int

    @property
    def title(self) -> str:
        """In words, for the results."""
        return f"{self.shape}, {self.samples} x {self.length:,} tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds of a counted step, the most memory that tensors took, and passes of a step."""

    seconds: float
    peak_gib: float
    passes: int = 1


class Ended(BaseException):
    """Enough steps. No Exception, so that no loop takes it for a fault."""


class StepClock:
    """Seconds of the steps of a loop that calls `tick` at the end of each.

    It waits for the card before the first counted step and after the last one alone, so that a loop
    which prepares a step while the card still works on the one before may do so.
    """

    def __init__(self, warmup: int, steps: int) -> None:
        self.done = 0
        self.warmup = warmup
        self.steps = steps
        self.began = now()
        self.seconds = math.nan

    def tick(self) -> None:
        """The end of a step; raises Ended after the last."""
        self.done += 1
        if self.done == self.warmup:
            self.began = now()
        if self.done == self.warmup + self.steps:
            self.seconds = now() - self.began
            raise Ended

    def measured(self, *, passes: int = 1) -> Measured:
        """What was counted."""
        return Measured(seconds=self.seconds / self.steps, peak_gib=peak_gib(), passes=passes)


def now() -> float:
    """Seconds, with all work of the card done."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def peak_gib() -> float:
    """The most memory that tensors took since `forget_peak`."""
    import torch

    return torch.cuda.max_memory_allocated() / GIB if torch.cuda.is_available() else math.nan


def forget_peak() -> None:
    """Begin to look for the most memory."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def free() -> None:
    """Give back to the card what nobody holds any more."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def random_model(shape: Shape, device: str, dtype: str = "float32") -> Any:
    """A model of the shape with random weights, made on the device."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = model_config(shape)
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    return model.to(device).eval()


def random_rows(case: SFTCase, steps: int) -> list[tuple[int, ...]]:
    """Rows for so many steps, no two alike."""
    return random_prompts(SHAPES[case.shape], case.rows * steps, case.length, seed=5)


class Ours:
    """This package."""

    def sft(self, case: SFTCase, warmup: int, steps: int, settings: Mapping[str, Any]) -> Measured:
        """Steps of `train_sft`. Settings: device, overrides (of the run's configuration)."""
        from workings.config.sft import SFTConfig
        from workings.data.sampler import BatchSampler
        from workings.tracking.recorder import Recorder
        from workings.training.checkpointer import Checkpointer, RunPaths
        from workings.training.sft import train_sft
        from workings.training.stop import StopRequest

        clock: StepClock

        class Stepped(Recorder):
            def record(
                self, step: int, metrics: Mapping[str, float], prefix: Any = "train"
            ) -> None:
                super().record(step, metrics, prefix)
                clock.tick()

        config = SFTConfig.model_validate(our_settings(case, warmup + steps, settings))
        model = random_model(SHAPES[case.shape], settings["device"])
        examples = our_examples(random_rows(case, warmup + steps))
        with tempfile.TemporaryDirectory() as folder, Stepped(Path(folder)) as recorder:
            checkpointer = Checkpointer(
                RunPaths(folder=Path(folder)),
                None,
                recorder,
                kind="sft",
                config_text="",
                resume=None,
                save_total_limit=1,
            )
            forget_peak()
            clock = StepClock(warmup, steps)
            with contextlib.suppress(Ended):
                train_sft(
                    config,
                    model=model,
                    examples=BatchSampler(examples, batch_size=case.rows, seed=0),
                    recorder=recorder,
                    checkpointer=checkpointer,
                    stop=StopRequest(),
                    autocast=half_of(settings["device"]),
                )
        measured = clock.measured()
        del model
        free()
        return measured

    def grpo(self, case: GRPOCase, steps: int, settings: Mapping[str, Any]) -> Measured:
        """Updates by `policy_step`. Settings: device, checkpointing, microbatch_tokens, kernels."""
        from workings.config.objective_settings import ObjectiveConfig
        from workings.training.distributed import Ranks
        from workings.training.forward import choose_layout
        from workings.training.layers import prepare_layers
        from workings.training.optim import build_adamw
        from workings.training.packing import pack, step_totals
        from workings.training.policy_loss import policy_gradient_loss
        from workings.training.step import policy_step

        model = random_model(SHAPES[case.shape], settings["device"])
        autocast = half_of(settings["device"])
        prepare_layers(model, checkpointing=settings["checkpointing"], kernels=settings["kernels"])
        layout = choose_layout(model, "auto", grouped=True, autocast=autocast)
        rows = our_group(case)
        optimizer = build_adamw(model)
        loss = policy_gradient_loss(
            step_totals(rows, Ranks()),
            ObjectiveConfig(preset="grpo").resolve(),
            max_length=case.length - case.prompt,
        )
        forget_peak()
        clock = StepClock(1, steps)
        with contextlib.suppress(Ended):
            while True:
                batches = pack(
                    rows,
                    layout=layout,
                    max_tokens=settings["microbatch_tokens"],
                    device=settings["device"],
                )
                policy_step(model, optimizer, batches, loss, autocast=autocast)
                clock.tick()
        measured = clock.measured()
        del model, optimizer, batches
        free()
        return measured

    def describe(self) -> dict[str, Any]:
        """The card, for the results file."""
        import torch

        if not torch.cuda.is_available():
            return {}
        properties = torch.cuda.get_device_properties(0)
        return {
            "device": properties.name,
            "device_memory_gib": round(properties.total_memory / GIB, 1),
        }

    def close(self) -> None:
        """The process ends with all it holds."""


def half_of(device: str) -> Any:
    """The arithmetic on a device: bfloat16 on a card."""
    import torch

    return torch.bfloat16 if device.startswith("cuda") else None


def our_settings(case: SFTCase, steps: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The run's configuration: all defaults but the sizes, and what is overridden."""
    run: dict[str, Any] = {
        "name": "training",
        "model": {"name_or_path": "random"},
        "data": {"train": {"path": "random"}},
        "batch_size": case.rows,
        "max_steps": steps,
        "trained_tokens": "all",
        "batch": {"microbatch_tokens": case.tokens},
        "optimizer": {"learning_rate": LEARNING_RATE},
        "evaluation": {"at_start": False, "at_end": False},
    }
    for name, value in settings.get("overrides", {}).items():
        section, _, key = name.rpartition(".")
        (run.setdefault(section, {}) if section else run)[key] = value
    return run


def our_examples(rows: Sequence[tuple[int, ...]]) -> list[Any]:
    """Rows as the loop takes them."""
    from workings.data.encoding import EncodedDemonstration
    from workings.types import Demonstration, Problem, Prompt

    found = []
    for number, ids in enumerate(rows):
        problem = Problem(id=f"random/{number}", question="", answer="0")
        demonstration = Demonstration(id=problem.id, question="", response="", answer="0")
        prompt = Prompt(problem=problem, ids=ids[:1], text="")
        found.append(
            EncodedDemonstration(
                demonstration=demonstration, prompt=prompt, response_ids=tuple(ids[1:])
            )
        )
    return found


def our_group(case: GRPOCase) -> list[Any]:
    """The rows of a group, with advantages."""
    from workings.training.packing import TrainRow

    shape, size = SHAPES[case.shape], case.length - case.prompt
    (prompt,) = random_prompts(shape, 1, case.prompt, seed=6)
    responses = random_prompts(shape, case.samples, size, seed=7)
    return [
        TrainRow(
            key=number,
            group=0,
            prompt_ids=prompt,
            response_ids=response,
            mask=(True,) * size,
            advantage=advantage_of(number),
            sampling_logprobs=(-12.0,) * size,
            kept_mass=(1.0,) * size,
            group_tokens=case.samples * size,
        )
        for number, response in enumerate(responses)
    ]


def advantage_of(number: int) -> float:
    """Half of a group is better than the other."""
    return 1.0 if number % 2 == 0 else -1.0


class TRL:
    """TRL's trainers."""

    def sft(self, case: SFTCase, warmup: int, steps: int, settings: Mapping[str, Any]) -> Measured:
        """Steps of `SFTTrainer.train`, in as few passes as the memory allows.

        Settings: device, tuned, dtype (of the weights).
        """
        import torch

        for passes in (1, 2, 4):
            with contextlib.suppress(torch.OutOfMemoryError):
                return self._sft(case, warmup, steps, settings, passes)
            free()  # once the error is gone, which holds on to what did not fit
        raise RuntimeError(f"{case.title} does not fit, not even in four passes")

    def _sft(
        self, case: SFTCase, warmup: int, steps: int, settings: Mapping[str, Any], passes: int
    ) -> Measured:
        from datasets import Dataset
        from trl import SFTConfig, SFTTrainer

        warnings.filterwarnings("ignore", category=FutureWarning)
        model = random_model(SHAPES[case.shape], settings["device"], settings["dtype"])
        rows = [list(ids) for ids in random_rows(case, warmup + steps)]
        with tempfile.TemporaryDirectory() as folder:
            arguments = trl_sft_settings(case, warmup + steps, tuned=settings["tuned"]) | {
                "per_device_train_batch_size": case.rows // passes,
                "gradient_accumulation_steps": passes,
            }
            trainer = SFTTrainer(
                model=model,
                args=SFTConfig(output_dir=folder, **arguments),
                train_dataset=Dataset.from_dict({"input_ids": rows}),
                processing_class=small_tokenizer(),
            )
            forget_peak()
            clock = StepClock(warmup, steps)
            trainer.add_callback(_ticking(clock))
            with contextlib.suppress(Ended):
                trainer.train()
        measured = clock.measured(passes=passes)
        del model, trainer
        free()
        return measured

    def grpo(self, case: GRPOCase, steps: int, settings: Mapping[str, Any]) -> Measured:
        """Updates of `GRPOTrainer`, given a batch. Settings: device, tuned, rows (of a pass)."""
        import torch
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        warnings.filterwarnings("ignore", category=FutureWarning)
        shape, size = SHAPES[case.shape], case.length - case.prompt
        model = random_model(shape, settings["device"])
        (prompt,) = random_prompts(shape, 1, case.prompt, seed=6)
        responses = random_prompts(shape, case.samples, size, seed=7)

        def made_up(inputs: Any) -> dict[str, Any]:
            device = settings["device"]
            return {
                "prompt_ids": torch.tensor([prompt] * case.samples, device=device),
                "prompt_mask": torch.ones(case.samples, case.prompt, dtype=int, device=device),
                "completion_ids": torch.tensor(responses, device=device),
                "completion_mask": torch.ones(case.samples, size, dtype=int, device=device),
                "advantages": torch.tensor(
                    [advantage_of(number) for number in range(case.samples)], device=device
                ),
                "num_items_in_batch": torch.tensor(case.samples * size, device=device),
            }

        with tempfile.TemporaryDirectory() as folder:
            arguments = trl_grpo_settings(
                case, 1 + steps, rows=settings["rows"], tuned=settings["tuned"]
            )
            trainer = GRPOTrainer(
                model=model,
                reward_funcs=lambda completions, **rest: [0.0] * len(completions),
                args=GRPOConfig(output_dir=folder, **arguments),
                train_dataset=Dataset.from_dict({"prompt": ["w5"] * (case.samples * (1 + steps))}),
                processing_class=small_tokenizer(),
            )
            trainer._generate_and_score_completions = made_up
            forget_peak()
            clock = StepClock(1, steps)
            trainer.add_callback(_ticking(clock))
            with contextlib.suppress(Ended):
                trainer.train()
        measured = clock.measured()
        del model, trainer
        free()
        return measured

    def versions(self) -> dict[str, str]:
        """Of what this side is made of."""
        return {name: version(name) for name in ("trl", "liger-kernel", "accelerate")}

    def close(self) -> None:
        """The process ends with all it holds."""


def trl_sft_settings(case: SFTCase, steps: int, *, tuned: bool) -> dict[str, Any]:
    """Arguments of `trl.SFTConfig`: what the case fixes, and what tuning changes.

    Rows have the length of a pack, so the packing `wrapped` leaves them as they are; the other
    strategy lays them into one lane, whose square plain attention would compute.
    """
    fixed = {
        "max_steps": steps,
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": case.rows,
        "max_length": case.length,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "seed": 0,
    }
    if not tuned:
        return fixed
    return fixed | {
        "gradient_checkpointing": False,
        "use_liger_kernel": True,
        "packing": True,
        "packing_strategy": "wrapped",
        "logging_steps": 1000,
    }


def trl_grpo_settings(case: GRPOCase, steps: int, *, rows: int, tuned: bool) -> dict[str, Any]:
    """Arguments of `trl.GRPOConfig`, for one update on one group."""
    fixed = {
        "max_steps": steps,
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": case.samples // rows,
        "num_generations": case.samples,
        "max_completion_length": case.length - case.prompt,
        "beta": 0.0,
        "save_strategy": "no",
        "report_to": "none",
        "logging_steps": 1000,
        "disable_tqdm": True,
        "seed": 0,
    }
    return fixed | ({"gradient_checkpointing": False, "use_liger_kernel": True} if tuned else {})


def small_tokenizer() -> Any:
    """A tokenizer that trainers can be made with; rows are ids already."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<eos>": 0, "<pad>": 1, "<unk>": 2} | {f"w{number}": number for number in range(3, 50)}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>"
    )


def _ticking(clock: StepClock) -> Any:
    from transformers import TrainerCallback

    class Ticking(TrainerCallback):
        """Says when a step has ended."""

        def on_step_end(self, *arguments: Any, **keywords: Any) -> None:
            clock.tick()

    return Ticking()
