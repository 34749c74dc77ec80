"""A data set: where its rows lie, which of them are taken, and how they are asked and counted.

A benchmark is a data set with its rules filled in; `conf/benchmark` holds one file for each.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from workings.config.section import Section
from workings.errors import ConfigError

Answers = Literal["text", "choice", "none"]

JOINT = "+"
"""Between names that are read one after the other: `split: train+test`."""
COUNTING_RULES = ("pass@1", "avg@N", "accuracy by subject", "win rate", "share judged safe")
JUDGED_RULES = COUNTING_RULES[-2:]
_AVERAGE = re.compile(r"avg@([1-9]\d*)")


class SourceConfig(Section):
    """One place that rows come from."""

    path: str = Field(description="A file, a folder, a hub id, or the name of a generated task.")
    subset: str | None = Field(
        None, description="Configuration name on the hub; a+b reads both, one after the other."
    )
    split: str = Field("train", description="Of a folder, a hub data set or a generated task.")
    columns: dict[str, str] = Field(
        default_factory=dict, description="role: column, where guessed wrong."
    )
    where: dict[str, str | list[str]] = Field(
        default_factory=dict,
        description="column: a value, a pattern with * and ?, or a list of them; other rows are "
        "left aside.",
    )


class DatasetConfig(SourceConfig):
    """Rows and what is made of them. `path` is a file, a folder, a hub id or a generated task."""

    name: str | None = Field(None, description="Shown in metrics; defaults to the path's stem.")
    limit: int | None = Field(None, ge=1, description="A seeded subset of so many rows.")
    limit_order: Literal["shuffled", "first"] = Field(
        "shuffled", description="first takes the first rows instead."
    )
    options: dict[str, str | int | float | bool | list[int] | list[str]] = Field(
        default_factory=dict, description="Settings of a generated task."
    )
    more: tuple[SourceConfig, ...] = Field((), description="Further places, whose rows follow.")
    local: tuple[SourceConfig, ...] = Field(
        (),
        description="Copies below the folder of data sets ($WORKINGS_DATA_DIR); the first that is "
        "there is read instead of path and more. a+b is two files.",
    )
    shuffle_seed: int | None = Field(
        None, ge=0, description="Rows in the order of datasets' shuffle(seed), before the limit."
    )
    repeats: Literal["keep", "group"] = Field(
        "keep", description="group: rows that repeat a question of one source are one problem."
    )
    answers: Answers | None = Field(
        None,
        description='choice: the letter, in a box or after "ANSWER:"; none: no gold, a judge '
        "decides. null: choice where rows offer choices, else text.",
    )
    distractors: tuple[str, ...] = Field(
        (), description="Columns of wrong choices; the right one takes a seeded place among them."
    )
    wording: str | None = Field(
        None, description="Text around {question}, its choices included; may hold {subject}."
    )
    problems: int | None = Field(
        None, ge=1, description="How many there should be; another number is noted."
    )
    counted: str | None = Field(
        None,
        description=f"One of {', '.join(COUNTING_RULES)}. avg@N takes N samples of each problem "
        "where the run does not say.",
    )
    bad_gold: Literal["error", "drop"] | None = Field(
        None, description="What becomes of an unusable gold answer; null is the run's rule."
    )
    note: str | None = Field(None, description="What a reader of the numbers should know.")

    @field_validator("counted")
    @classmethod
    def _is_a_rule(cls, value: Any) -> Any:
        fixed = set(COUNTING_RULES) - {"avg@N"}
        if value is None or value in fixed or _AVERAGE.fullmatch(value):
            return value
        raise ConfigError(f"counted={value}; expected one of {', '.join(COUNTING_RULES)}")

    @field_validator("wording")
    @classmethod
    def _asks_the_question(cls, value: Any) -> Any:
        if value is None or "{question}" in value:
            return value
        raise ConfigError(f"wording={value!r:.60}; expected a text with {{question}}")

    @model_validator(mode="after")
    def _is_judged_or_graded(self) -> DatasetConfig:
        if (self.counted in JUDGED_RULES) != (self.answers == "none"):
            raise ConfigError(
                f"counted={self.counted} and answers={self.answers}; "
                f"{' and '.join(JUDGED_RULES)} go with answers=none, and with nothing else"
            )
        return self

    @property
    def is_judged(self) -> bool:
        """True where no gold says what is right."""
        return self.answers == "none"

    @property
    def num_samples(self) -> int:
        """Samples of each problem by the data set's own rule, 1 where it has none."""
        average = _AVERAGE.fullmatch(self.counted or "")
        return int(average[1]) if average else 1
