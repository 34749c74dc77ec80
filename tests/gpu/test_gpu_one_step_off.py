"""Sampling ahead on CUDA: an engine in a process of its own, on the trainer's card or another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tiny import tiny_tokenizer
from workings.cli.main import main

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def save_model(folder: Path) -> Path:
    """A random model with heads of a size that the paged kernels take."""
    tokenizer = tiny_tokenizer()
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def rows_of(model: Path, output: Path, *more: str) -> list[dict[str, Any]]:
    arguments = [
        *("grpo", "-c", "grpo", "name=run", f"output_dir={output}", "seed=7", "~data"),
        f"model={{name_or_path: {model}, dtype: float32, device: 'cuda:0'}}",
        "data.train={path: arithmetic, options: {num_problems: 24, terms: 2, operands: [1, 99]}}",
        *("data.template=think", "data.max_prompt_length=null", "reward.overlong_buffer=9"),
        "sampling={temperature: 1.0, max_tokens: 10, stop: [a, e, '3', '7', x, '+']}",
        *("prompts_per_step=8", "num_generations=8", "train_batch_size=null", "max_steps=5"),
        *("optimizer={learning_rate: 0.002}", "evaluation.every_steps=0", "tracking.console=false"),
        *("checkpoint={every_steps: 2, save_total_limit: 3}", "schedule=one_step_off"),
        *("engine.own_process=true", "engine.gpu_memory_utilization=0.1", *more),
    ]
    assert main(arguments) == 0
    lines = (output / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == "train"]


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
@pytest.mark.parametrize("name", ["paged", "transformers"])
def test_samples_are_one_version_behind_and_measured(
    name: str, device: str, tmp_path: Path
) -> None:
    if int(device[-1]) >= torch.cuda.device_count():
        pytest.skip("one card")
    model = save_model(tmp_path / "tiny")
    rows = rows_of(
        model, tmp_path, f"engine.name={name}", "engine.dtype=float32", f"engine.device={device}"
    )
    assert [row["train/weight_version_lag"] for row in rows] == [0.0, 1.0, 1.0, 1.0, 1.0]
    # The first batch shows what engine and trainer compute differently, the others what moved too.
    assert rows[0]["train/mismatch_kl"] < 1e-4
    assert max(row["train/mismatch_kl"] for row in rows[1:]) > 10 * rows[0]["train/mismatch_kl"]
    assert (tmp_path / "run" / "checkpoints" / "step_000004" / "ahead.pt").is_file()
