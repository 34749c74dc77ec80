"""The pages on metrics and files name what runs record and write, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from off_policy_runs import off_policy_arguments, write_traces
from tiny_runs import LORA, dpo_arguments, expert_arguments, grpo_arguments, sft_arguments

from tiny import save_tiny
from workings import read_metrics
from workings.cli.main import main

OBJECTIVES = {
    "steered": (
        "objective={preset: clip_cov, dual_clip: 3, correction: icepop, beta: 0.1, kl_target: 0.1, "
        "entropy_target: 9}",
    ),
    "filter": ("objective={preset: dapo}",),
    "replace": ("objective={dynamic_sampling: replace}",),
}
"""Settings that between them have every metric of a GRPO step that not every run has."""
pytestmark = pytest.mark.slow
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of every kind, SFT's with LoRA, and an evaluation of several samples."""
    root = tmp_path_factory.mktemp("runs")
    model = save_tiny(root / "model")
    several = ["evaluation.num_samples=2", "evaluation.sampling.temperature=1"]
    entropy = "evaluation.token_entropy=true"
    grpo = grpo_arguments(model, root, "max_steps=3", "train_batch_size=32", *several, entropy)
    assert main(grpo) == 0
    assert main(sft_arguments(model, root, LORA, "max_steps=3")) == 0
    assert main(dpo_arguments(model, root, "loss=[sigmoid, sft]", "max_steps=3")) == 0
    assert main(expert_arguments(model, root, "iterations=1")) == 0
    for name, objective in OBJECTIVES.items():
        assert main(grpo_arguments(model, root, "max_steps=1", *objective, name=name)) == 0
    data = write_traces(root / "luffy.parquet")
    for preset, more in (("rl_sft_loss", "off_policy.wrong_traces=drop"), ("exgrpo", "seed=1")):
        settings = (f"objective.preset={preset}", "max_steps=1", more)
        assert main(off_policy_arguments(model, data, root, *settings, name=preset)) == 0
    again = ["datasets=[arithmetic]", "limit=4", "num_samples=2", "sampling.temperature=1.0"]
    assert main(["eval", "-c", str(root / "grpo"), "name=eval", *again]) == 0
    return root


def names_on_page(text: str) -> set[str]:
    """The first cells of the metric tables, several names to a cell."""
    cells = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def in_general(name: str) -> str:
    """The name as the page writes it: without data set, component and counts."""
    name = re.sub(r"^train/rewards/\w+/", "train/rewards/NAME/", name)
    name = re.sub(r"/losses/\w+", "/losses/NAME", name)
    name = re.sub(r"/bucket/\d+", "/bucket/K", name)
    name = re.sub(r"^eval/(arithmetic/)?", "", name)
    return re.sub(r"^maj@\d+", "maj@N", re.sub(r"^pass@\d+", "pass@K", name))


def test_the_page_names_every_metric(folder: Path) -> None:
    recorded = {
        in_general(name)
        for run in ("grpo", "sft", "dpo", "expert", "eval", *OBJECTIVES, "rl_sft_loss", "exgrpo")
        for row in read_metrics(folder / run / "metrics.jsonl")
        for name in row
        if "/" in name
    }
    page = names_on_page((REFERENCE / "metrics.md").read_text(encoding="utf-8"))
    assert recorded - page == set()
    # A random model is never right, so there is no length of right answers to report.
    assert page - recorded <= {"avg_response_length/correct"}


def test_the_page_names_every_file(folder: Path) -> None:
    text = (REFERENCE / "files.md").read_text(encoding="utf-8")
    tokenizer = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    written = {
        re.sub(r"step_\d+", "step_000012", path.name)
        for run in ("grpo", "sft", "dpo", "expert", "eval")
        for path in (folder / run).rglob("*")
        if path.name not in {*tokenizer, "validation", "arithmetic"}
    }
    missing = {name for name in written if f"{name}" not in text}
    assert missing == set()
