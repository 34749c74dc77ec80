"""Models and data sets under the names they had before; each front calls what the commands call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from workings.cli.build import (
    Policy,
    build_policy,
    demonstrations_at,
    problems_at,
    split_demonstrations,
    split_problems,
    training_prompting,
)
from workings.config.sections import DataConfig, ModelConfig
from workings.data.encoding import EncodedDemonstration
from workings.data.loaded import Loaded
from workings.data.templates import PromptTemplate
from workings.errors import ConfigError
from workings.grading.grader import Grader, shared_grader
from workings.models.checkpoint import write_checkpoint
from workings.models.save import save_policy
from workings.types import Demonstration, Problem, Prompt


class ModelManager:
    """A model with its adapter and tokenizer: loaded on first use, templated, saved.

    Unsloth is not supported: `use_unsloth=True` raises ConfigError.
    """

    def __init__(self, config: ModelConfig, *, seed: int = 0, use_unsloth: bool = False) -> None:
        if use_unsloth:
            raise ConfigError(
                "Unsloth is not supported: it replaces model code that this package has to know",
                hint="model.lora, batch.activation_checkpointing and model.attention=sdpa save the "
                "same memory",
            )
        self.config = config
        self.seed = seed

    @cached_property
    def policy(self) -> Policy:
        """Model, tokenizer, device and arithmetic; LoRA is on the model where the config has it."""
        return build_policy(self.config, seed=self.seed)

    @property
    def model(self) -> Any:
        """The Hugging Face or peft model."""
        return self.policy.model

    @property
    def tokenizer(self) -> Any:
        """Its tokenizer."""
        return self.policy.tokenizer

    def apply_template(self, template: PromptTemplate) -> None:
        """Give the tokenizer the chat template of `template`, so that it is saved with the model.

        ConfigError where the template has none.
        """
        if template.chat_template is None:
            raise ConfigError(f"template {template.name!r} brings no chat template of its own")
        self.tokenizer.chat_template = template.chat_template

    def save(self, folder: str | Path) -> Path:
        """`folder` with the model (of LoRA the adapter) and the tokenizer, whole or absent."""
        target = Path(folder).expanduser()
        write_checkpoint(
            target, lambda place: save_policy(self.model, self.tokenizer, place, trained=False)
        )
        return target


class DatasetLoader:
    """The training rows of a `DataConfig`, and what is held out of them.

    `notes` says in words what was read and what was left out.
    """

    def __init__(self, config: DataConfig, *, seed: int = 0, grader: Grader | None = None) -> None:
        self.config = config
        self.seed = seed
        self.notes: list[str] = []
        self._grader = grader

    def demonstrations(self) -> Loaded[Demonstration]:
        """The rows that SFT imitates."""
        return demonstrations_at(self.config.train, seed=self.seed, log=self.notes.append)

    def problems(self) -> Loaded[Problem]:
        """The problems that RL samples, their golds checked."""
        return problems_at(
            self.config.train,
            seed=self.seed,
            grader=self._grader or shared_grader(),
            bad_gold=self.config.bad_gold,
            log=self.notes.append,
        )

    def split_demonstrations(self) -> tuple[list[Demonstration], list[Problem]]:
        """Training rows, and the validation problems held out of them."""
        return split_demonstrations(self.config, self.demonstrations().items, seed=self.seed)

    def split_problems(self) -> tuple[list[Problem], list[Problem]]:
        """Training and validation problems."""
        return split_problems(self.config, self.problems().items, seed=self.seed)


class DatasetProcessor:
    """Rows to token ids within the length limits of a `DataConfig`.

    `notes` says how many rows a limit dropped or cut.
    """

    def __init__(self, config: DataConfig, tokenizer: Any) -> None:
        self.config = config
        self.notes: list[str] = []
        self._prompting = training_prompting(config, tokenizer)

    @property
    def template(self) -> PromptTemplate:
        """The template that questions are put into."""
        return self._prompting.template

    def prompts(self, problems: Sequence[Problem]) -> tuple[Prompt, ...]:
        """The encoded prompts."""
        return self._prompting.prompts(problems, self.notes.append, what="prompts")

    def demonstrations(self, rows: Sequence[Demonstration]) -> tuple[EncodedDemonstration, ...]:
        """The encoded demonstrations."""
        return self._prompting.demonstrations(
            rows, self.notes.append, max_response_length=self.config.max_response_length
        )
