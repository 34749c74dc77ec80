"""Evaluation inside training: several sets, what chooses the best, step 0 against the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from cli_runs import SUMS, VALIDATION, grpo_arguments, run_arguments
from transformers import AutoModelForCausalLM

import vllm_stand_in
from workings.cli.evaluation.before_after import before_and_after
from workings.cli.evaluation.validation import benchmark_of
from workings.cli.main import main
from workings.data.benchmarks import benchmark_config
from workings.evaluation.compare import compare_folders
from workings.evaluation.reports import read_results, read_summary
from workings.models.weights import named_full_weights
from workings.rollout.vllm_engine import VLLMEngine
from workings.tracking.rollouts import read_groups

OTHER = f"{{path: arithmetic, name: other, split: test, options: {{num_problems: 5, {SUMS}}}}}"


@pytest.fixture(scope="module")
def measured(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with the tag rewards that reports a second set and writes whole-run files."""
    output = tmp_path_factory.mktemp("measured")
    more = ("name=m", f"evaluation.datasets=[{OTHER}]", "evaluation.artefact=true", "reward=tags")
    more += ("evaluation.token_entropy=true",)
    assert main(grpo_arguments(tiny_folder, output, *more)) == 0
    return output / "m"


def rows(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_every_set_is_measured_at_every_evaluation(measured: Path) -> None:
    for step in (0, 1, 2):
        for name, problems in (("arithmetic", 8), ("other", 5)):
            summary = read_summary(measured / "eval" / f"step_{step:06d}" / name)
            assert summary["metrics"]["num_problems"] == problems
            assert summary["settings"]["step"] == step
    names = {name for row in rows(measured) for name in row}
    assert {"eval/accuracy", "eval/other/accuracy", "eval/other/format_reward"} <= names
    assert "eval/arithmetic/accuracy" not in names


def test_tag_metrics_are_recorded_and_told(measured: Path) -> None:
    found = [row for row in rows(measured) if "eval/tags/format_percent" in row]
    assert [row["step"] for row in found] == [0, 1, 2]
    assert found[0]["eval/tags/num_samples"] == 16
    assert sum("eval/other/tags/avg_total_reward" in row for row in rows(measured)) == 3
    log = (measured / "run.log").read_text()
    assert "arithmetic at step 0: format 0.0 %, answer 0.0 %, reasoning present" in log


def test_the_entropy_of_evaluated_samples_is_that_of_the_policy(measured: Path) -> None:
    """Against a pass of the saved model over each stored response alone."""
    model = AutoModelForCausalLM.from_pretrained(measured / "final").float()
    for name, prefix in (("arithmetic", "eval/"), ("other", "eval/other/")):
        folder = measured / "eval" / "step_000002" / name
        wanted = []
        for group in read_groups(folder / "responses.parquet"):
            for rollout in group.rollouts:
                ids = torch.tensor([[*group.prompt.ids, *rollout.ids]])
                with torch.no_grad():
                    logits = model(ids).logits[0, len(group.prompt.ids) - 1 : -1]
                table = torch.log_softmax(logits / 0.8, -1)  # the temperature of the samples
                wanted.append(-(table.exp() * table).sum(-1).mean().item())
        # float32, other batch shapes
        found = [row["token_entropy"] for row in read_results(folder)]
        assert found == pytest.approx(wanted, rel=1e-4)
        mean = read_summary(folder)["metrics"]["avg_token_entropy"]
        assert mean == pytest.approx(sum(wanted) / len(wanted), rel=1e-4)
        recorded = [row for row in rows(measured) if f"{prefix}avg_token_entropy" in row]
        assert [row["step"] for row in recorded] == [0, 1, 2]
        assert recorded[-1][f"{prefix}avg_token_entropy"] == pytest.approx(mean, rel=1e-6)


def test_no_entropy_is_measured_unless_asked_for(sft_run: Path) -> None:
    folder = sft_run / "eval" / "step_000020" / "validation"
    assert "avg_token_entropy" not in read_summary(folder)["metrics"]
    assert "token_entropy" not in read_results(folder)[0]


def test_the_end_tells_step_0_against_the_last(measured: Path) -> None:
    lines = before_and_after(measured)
    log = (measured / "run.log").read_text()
    assert all(line in log for line in lines)
    assert lines[0].startswith("arithmetic, step 0 against step 2: ")
    sides = [measured / "eval" / f"step_{step:06d}" / "other" for step in (0, 2)]
    difference = compare_folders(sides[:1], sides[1:])
    told = next(line for line in lines if line.startswith("other, difference"))
    assert f"{100 * difference.difference:+.1f} points" in told
    assert "over 5 problems" in told
    assert sum("total reward" in line for line in lines) == 4


def test_a_run_without_step_0_tells_nothing(sft_run: Path, tmp_path: Path) -> None:
    assert before_and_after(sft_run) == []
    assert before_and_after(tmp_path) == []


def test_whole_run_files_of_every_evaluation(measured: Path) -> None:
    for step in (0, 1, 2):
        folder = measured.parent / "eval_runs" / "m" / f"step_{step}"
        (file,) = folder.glob(f"m_step_{step}_eval_*.json")
        assert len(read_results(file)) == 2 * (8 + 5)


def test_a_benchmark_is_known_by_its_rows() -> None:
    assert benchmark_of(benchmark_config("math500")) == "math500"
    assert benchmark_of(benchmark_config("arithmetic")) is None
    mine = benchmark_config("math500").model_copy(update={"path": "mine.jsonl"})
    assert benchmark_of(mine) is None


def test_two_sets_of_one_name_are_refused(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = OTHER.replace("name: other", "name: arithmetic")
    more = ("name=m", f"evaluation.datasets=[{again}]")
    assert main(grpo_arguments(tiny_folder, tmp_path, *more)) == 2
    assert "two sets to evaluate on are called 'arithmetic'" in capsys.readouterr().err


LOADED = ["begin reload", "end reload", "reset_prefix_cache"]
AWAKE = ["wake weights", *LOADED, "wake kv_cache"]


@pytest.fixture
def resting_vllm(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> type[vllm_stand_in.StandIn]:
    """vLLM's stand-in, whose weights are gone once it sleeps, as on a GPU."""
    model = AutoModelForCausalLM.from_pretrained(tiny_folder)
    always = property(lambda engine: True, lambda engine, value: None)
    monkeypatch.setattr(VLLMEngine, "_sleeps", always, raising=False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return vllm_stand_in.install(monkeypatch, [name for name, _ in named_full_weights(model)])


@pytest.mark.parametrize("entropy", [False, True])
def test_weights_that_an_evaluation_dropped_are_there_for_the_next_batch(
    entropy: bool,
    tiny_folder: Path,
    tmp_path: Path,
    resting_vllm: type[vllm_stand_in.StandIn],
) -> None:
    more = ("name=m", "engine.name=vllm", f"evaluation.token_entropy={str(entropy).lower()}")
    assert main(grpo_arguments(tiny_folder, tmp_path, *more)) == 0
    evaluated = [row["step"] for row in rows(tmp_path / "m") if "eval/accuracy" in row]
    assert evaluated == [0, 1, 2]
    calls = resting_vllm.made.calls
    assert calls[:4] == [*LOADED, "sleep 2"]
    assert calls.count("sleep 2") == 1 + 3 + 2  # at first, after evaluations, while training


def test_an_engine_that_only_evaluates_rests_from_the_first_step_on(
    tiny_folder: Path, tmp_path: Path, resting_vllm: type[vllm_stand_in.StandIn]
) -> None:
    arguments = run_arguments(
        "sft",
        tiny_folder,
        tmp_path,
        *("name=s", f"data.validation={VALIDATION}", "data.validation_fraction=0"),
        *("data.max_response_length=null", "batch_size=4", "max_steps=2", "engine.name=vllm"),
        "evaluation={every_steps: 1, at_start: false, limit: 4, sampling: {max_tokens: 8}}",
    )
    assert main(arguments) == 0
    evaluation = [*AWAKE, "sleep 2"]
    assert resting_vllm.made.calls == [
        *LOADED,
        "sleep 2",
        *evaluation,
        *evaluation,
        "shutdown",
    ]
