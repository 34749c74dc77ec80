"""`workings eval` on every benchmark file: what a summary says is what results.jsonl holds.

A scripted engine gives right, wrong and missing answers in the forms that are asked for, so that
every class of sample occurs; a tiny model goes through the real command.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tiny import save_tiny, tiny_tokenizer
from workings.cli.main import main
from workings.config.dataset import DatasetConfig
from workings.data.benchmarks import copy_of, problem_arguments, shipped_benchmarks
from workings.data.choices import LABELS
from workings.data.encoding import encode_prompts
from workings.data.loading import load_problems
from workings.data.templates import load_template
from workings.evaluation.evaluate import evaluate
from workings.evaluation.reports import write_results
from workings.grading.grader import Grader
from workings.rewards.reward import build_reward
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.scripted import ScriptedEngine
from workings.types import Problem, Prompt

Row = dict[str, Any]
Z = 1.959963984540054
CATEGORIES = {
    (1.0, 1.0): "category_1_format1_answer1",
    (1.0, 0.0): "category_2_format1_answer0",
    (0.0, 0.0): "category_3_format0_answer0",
    (0.0, 1.0): "category_4_format0_answer1",
}


def local_benchmarks(shared_data: Path) -> list[DatasetConfig]:
    """The benchmarks that a file is there for, with golds."""
    return [
        config
        for config in shipped_benchmarks()
        if copy_of(config, shared_data) is not None and not config.is_judged
    ]


def wilson(successes: float, n: int) -> tuple[float, float]:
    """The roots of (p - x/n)^2 = z^2 p (1 - p) / n, the interval's definition."""
    share, a = successes / n, 1 + Z * Z / n
    b, c = -(2 * share + Z * Z / n), share * share
    root = math.sqrt(b * b - 4 * a * c)
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def check_summary(summary: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Every count, mean and estimate of summary.json, from the rows of results.jsonl alone."""
    assert summary["total_examples"] == len(rows)
    metrics = [row["metrics"] for row in rows]
    for name in ("format_reward", "answer_reward", "reward"):
        mean = sum(one[name] for one in metrics) / len(rows)
        assert summary["aggregate_metrics"][name] == pytest.approx(mean, abs=1e-12)
    classes = [CATEGORIES[one["format_reward"], one["answer_reward"]] for one in metrics]
    for name, cell in summary["category_breakdown"].items():
        assert cell["count"] == classes.count(name)
        assert cell["percentage"] == pytest.approx(100 * classes.count(name) / len(rows))
    for field, column in (("subject_breakdown", "subject"), ("level_breakdown", "level")):
        names = {row[column] for row in rows} - {None}
        assert summary[field].keys() == names
        for name in names:
            right = [row["metrics"]["reward"] for row in rows if row[column] == name]
            assert summary[field][name]["total"] == len(right)
            assert summary[field][name]["correct"] == sum(right)
            assert summary[field][name]["accuracy"] == pytest.approx(sum(right) / len(right))
    by_problem: dict[str, list[float]] = {}
    for row in rows:
        by_problem.setdefault(row["id"], []).append(row["metrics"]["reward"])
    means = [sum(values) / len(values) for values in by_problem.values()]
    name, headline = next(iter(summary["estimates"].items()))
    samples = len(rows) // len(by_problem)
    assert name == ("pass@1" if samples == 1 else f"avg@{samples}")
    assert (headline["num_problems"], headline["num_samples"]) == (len(by_problem), samples)
    assert headline["value"] == pytest.approx(sum(means) / len(means), abs=1e-12)
    if samples == 1:
        low, high = wilson(sum(means), len(means))
        assert (headline["low"], headline["high"]) == pytest.approx((low, high), abs=1e-9)
    for name, one in summary["estimates"].items():
        if name.startswith("pass@") and samples > 1:
            k = int(name[5:])
            shares = [
                1 - math.comb(samples - int(sum(values)), k) / math.comb(samples, k)
                for values in by_problem.values()
            ]
            assert one["value"] == pytest.approx(sum(shares) / len(shares), abs=1e-12)
    tokens = sum(row["response_tokens"] for row in rows) / len(rows)
    assert summary["metrics"]["avg_response_length/total"] == pytest.approx(tokens)
    cut = sum(row["finish_reason"] == "length" for row in rows) / len(rows)
    assert summary["metrics"]["truncation_rate"] == pytest.approx(cut)


def read_folder(folder: Path) -> tuple[dict[str, Any], list[Row]]:
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").split("\n")
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary, [json.loads(line) for line in lines if line]


def script(prompts: Sequence[Prompt]) -> Any:
    """Right in a box, right as asked for, wrong, without an answer: by the problem's place."""
    places = {prompt.ids: place for place, prompt in enumerate(prompts)}

    def say(request: Request, sample: int) -> str:
        problem: Problem = prompts[places[request.prompt_ids]].problem
        labels = str(problem.extra.get(LABELS, ""))
        match (places[request.prompt_ids] + sample) % 4:
            case 0:
                return f"So it is \\boxed{{{problem.answer}}}."
            case 1 if labels:
                return f"ANSWER: {problem.answer}"
            case 1:
                return f"First \\boxed{{0}}, no: \\boxed{{{problem.answer}}}"
            case 2:
                wrong = labels.replace(problem.answer, "")[:1] if labels else "17 + zebra"
                return f"\\boxed{{{wrong}}}"
            case _:
                return "I do not know."

    return say


def test_summaries_agree_with_their_rows(shared_data: Path, tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    configs = local_benchmarks(shared_data)
    assert len(configs) >= 25
    with Grader() as grader:
        reward = build_reward("question_only", grader=grader)
        for config in configs:
            arguments = problem_arguments(config.model_copy(update={"limit": 12}))
            loaded = load_problems(
                **{"bad_gold": "error", **arguments},
                check_gold=grader.check_gold,
                data_dir=shared_data,
            )
            prompts = encode_prompts(loaded.items, load_template("question_only"), tokenizer).items
            name = str(config.name)
            result = evaluate(
                ScriptedEngine(tokenizer, script(prompts)),
                prompts,
                reward,
                SamplingParams(max_tokens=400),
                num_samples=4 if config.num_samples > 1 else 1,
                seed=0,
                dataset=name,
            )
            write_results(tmp_path, result, settings={"grader": dict(reward.settings)})
            summary, rows = read_folder(tmp_path / name)
            check_summary(summary, rows)
            assert len({row["id"] for row in rows}) == 12
            share = summary["aggregate_metrics"]
            # A gold that the tokenizer cannot spell, Greek or Chinese, is not said right.
            right = sum(p.answer.isascii() for p in loaded.items)
            assert 0.5 * right / 12 - 0.26 <= share["reward"] <= 0.5
            assert share["format_reward"] == pytest.approx(0.75)


@pytest.mark.slow
def test_every_file_through_the_command(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By each set's own rule: 32 samples of each problem of AIME, AMC and LUFFY's file."""
    monkeypatch.setenv("WORKINGS_DATA_DIR", str(shared_data))
    model = save_tiny(tmp_path / "tiny")
    values = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": 8192}
    (model / "config.json").write_text(json.dumps(values))  # a token a character is long
    configs = local_benchmarks(shared_data)
    names = ",".join(str(config.name) for config in configs)
    arguments = [
        "eval",
        *("-c", "eval", f"model={{name_or_path: {model}, dtype: float32, device: cpu}}"),
        *(f"datasets=[{names}]", "limit=2", "template=question_only", "reward=question_only"),
        *("sampling={temperature: 1.0, max_tokens: 4}", f"output_dir={tmp_path}", "name=all"),
        *("engine=transformers", "tracking.console=false"),
    ]
    assert main(arguments) == 0
    for config in configs:
        summary, rows = read_folder(tmp_path / "all" / str(config.name))
        assert len(rows) == 2 * config.num_samples
        check_summary(summary, rows)
        assert summary["settings"]["data"]["counted"] == config.counted
