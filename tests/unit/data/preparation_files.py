"""Made-up rows in the published schemas of the sources, and what tests of preparation share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from workings.data.preparation.prepare import Request, prepare
from workings.data.preparation.recipe import CountTokens
from workings.data.preparation.recipes import RECIPES
from workings.data.preparation.source import find_source

Row = dict[str, Any]


def omr_row(number: int, *, rate: str = "1.0", **changes: Any) -> Row:
    """A row of nvidia/OpenMathReasoning, split `cot`."""
    return {
        "expected_answer": str(number),
        "problem_type": "has_answer_extracted",
        "problem_source": "aops_c4_high_school_math",
        "generation_model": "QwQ-32B",
        "pass_rate_72b_tir": rate,
        "problem": f"What is {number} plus nothing, if the sum is counted in apples or ripe pears?",
        "generated_solution": f"<think>\nIt is {number}.\n</think>\n\nSo $\\boxed{{{number}}}$.",
        "inference_mode": "cot",
        "used_in_kaggle": True,
        **changes,
    }


def dapo_row(number: int, **changes: Any) -> Row:
    """A row of open-r1/DAPO-Math-17k-Processed."""
    question = f"Find the number of ways to put {number} balls into as many boxes."
    return {
        "prompt": question,
        "solution": str(number),
        "data_source": "math_dapo",
        "source_prompt": [{"role": "user", "content": f"Solve step by step. {question}"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": str(number), "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": f"row-{number}"},
        **changes,
    }


def openr1_row(number: int, marks: Sequence[tuple[str, bool, bool]], **changes: Any) -> Row:
    """A row of open-r1/OpenR1-Math-220k; a mark is a trace, whether right, whether complete."""
    return {
        "problem": f"Compute the product of {number} and one.",
        "solution": f"It is {number}.",
        "answer": str(number),
        "problem_type": "Algebra",
        "question_type": "math-word-problem",
        "source": "olympiads",
        "uuid": f"uuid-{number}",
        "is_reasoning_complete": [complete for _, _, complete in marks],
        "generations": [trace for trace, _, _ in marks],
        "correctness_math_verify": [right for _, right, _ in marks],
        "correctness_llama": None,
        "finish_reasons": None,
        "correctness_count": sum(right for _, right, _ in marks),
        "messages": [{"role": "user", "content": f"Compute the product of {number} and one."}],
        **changes,
    }


def luffy_row(number: int, trace: str | None, **changes: Any) -> Row:
    """A row of Elliott/Openr1-Math-46k-8192."""
    return {
        "data_source": "",
        "prompt": [
            {"role": "system", "content": "Reason first."},
            {"role": "user", "content": f"How many sides has a polygon of {number} corners?"},
        ],
        "target": None if trace is None else [{"role": "assistant", "content": trace}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(number)},
        "extra_info": {"split": "default", "index": number},
        **changes,
    }


def course_row(number: int, **changes: Any) -> Row:
    """A row of garg-aayush/sft-cs336-assign5-datasets, sft-reason."""
    return {
        "problem": f"What is {number} squared, less its own square?",
        "reasoning_trace": f"Both are equal, so 0. </think> <answer>{number * 0}</answer>",
        "extracted_answer": "0",
        "expected_answer": "0",
        **changes,
    }


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(list(rows)), path, **options)
    return path


def read_jsonl(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def prepared(
    name: str,
    source: Path | str,
    target: Path,
    *,
    count_tokens: CountTokens | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> Row:
    """The record of a preparation by the recipe of that name."""
    recipe = RECIPES[name]
    request = Request(
        recipe=recipe,
        settings=recipe.effective(settings or {}),
        source=find_source(str(source), patterns=recipe.patterns, split=recipe.split),
        target=target,
        command="workings data prepare",
        versions={"workings": "0"},
        **options,
    )
    return prepare(request, count_tokens=count_tokens, log=lambda _: None)


def words(question: str, response: str) -> int:
    """A stand-in for a tokenizer: words of both, and one for EOS."""
    return len(question.split()) + len(response.split()) + 1
