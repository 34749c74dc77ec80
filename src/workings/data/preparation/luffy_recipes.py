"""The recipes of LUFFY's training data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workings.data.luffy_files import luffy_schema
from workings.data.preparation import luffy
from workings.data.preparation.recipe import Recipe, Settings

SAME = "questions are compared without white space, case and LaTeX's delimiters and spacing"
CHECKED = (
    "rows without a prompt that ends in a question, or without a gold answer, are left out",
    f"a question that was asked before is left out; {SAME}",
)
OPENR1_LICENCE = "Apache-2.0 for open-r1/OpenR1-Math-220k (its page)"


def _question(record: Mapping[str, Any]) -> str:
    return str(record["prompt"][-1]["content"])


LUFFY_RECIPES = (
    Recipe(
        name="luffy",
        about="LUFFY's training parquet, ready made: 46k problems with a teacher's trace",
        source="Elliott/Openr1-Math-46k-8192",
        patterns=("data/train-*.parquet", "*.parquet"),
        split="train",
        folder="data/openr1",
        licence=f"not stated by this recipe; derived from OpenR1: {OPENR1_LICENCE}",
        optional=("exclude",),
        schemas={luffy.OPENR1: luffy_schema},
        steps=(*CHECKED, "prompts, traces and golds are kept as they are, a null target too"),
        question=_question,
        make=luffy.make_luffy,
    ),
    Recipe(
        name="openr1_46k",
        about="LUFFY's training parquet, made from OpenR1-Math-220k",
        source="open-r1/OpenR1-Math-220k",
        patterns=("data/train-*.parquet",),
        split="train",
        folder="data/openr1",
        licence=OPENR1_LICENCE,
        columns=("problem", "answer", *luffy.GENERATIONS),
        settings=Settings(max_length=8192, tokenizer="Qwen/Qwen2.5-Math-7B"),
        optional=("exclude", "system_prompt"),
        schemas={luffy.OPENR1: luffy_schema},
        steps=(
            "of every problem the first generation is kept that math-verify found correct, that is "
            "complete, and that has at most {max_length} tokens with EOS by the tokenizer "
            "{tokenizer}; a problem without one is left out",
            *CHECKED,
            "the prompt is the question as a user's message, after the system message of "
            "--system-prompt where that is given",
        ),
        question=_question,
        make=luffy.make_openr1,
    ),
    Recipe(
        name="luffy_sft",
        about="LUFFY's SFT baseline: the traces of the training parquet as demonstrations",
        source="Elliott/Openr1-Math-46k-8192",
        patterns=("data/train-*.parquet", luffy.OPENR1, "*.parquet"),
        split="train",
        folder="data/openr1_sft",
        licence=f"not stated by this recipe; derived from OpenR1: {OPENR1_LICENCE}",
        steps=(
            "rows without a trace, a gold answer or a prompt that ends in a question are left out",
            "a thought tag with its line break at the beginning of a trace is removed: the chat "
            "template of LUFFY's model ends with it",
        ),
        question=_question,
        make=luffy.make_luffy_sft,
    ),
    Recipe(
        name="luffy_sft_rl",
        about="LUFFY's two stages: problems for RL that its SFT was not trained on",
        source="Elliott/Openr1-Math-48k-Complement",
        patterns=("data/train-*.parquet", "*.parquet"),
        split="train",
        folder="data/openr1_complement",
        licence=f"not stated by this recipe; derived from OpenR1: {OPENR1_LICENCE}",
        optional=("exclude", "system_prompt"),
        schemas={luffy.COMPLEMENT: luffy_schema},
        steps=(
            *CHECKED,
            "questions of the data set --exclude are left out",
            "traces are left out: every target is null",
        ),
        question=_question,
        make=luffy.make_luffy_sft_rl,
    ),
)
