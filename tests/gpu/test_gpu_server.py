"""Weights to an inference server from a card: by NCCL to another card, by gloo to the same one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tiny import tiny_tokenizer
from workings.errors import EngineError
from workings.models.weights import named_full_weights
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.server_engine import ServerEngine
from workings.rollout.transformers_engine import TransformersEngine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

TOKENIZER = tiny_tokenizer()
EOS = (TOKENIZER.eos_token_id,)
REQUESTS = [
    Request(prompt_ids=tuple(TOKENIZER.encode(text)), num_samples=4, seed=seed)
    for seed, text in enumerate(("hello", "What is 3+4?", "a"))
]
GREEDY = SamplingParams(temperature=0, max_tokens=32)


def model_of(seed: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(TOKENIZER),
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        eos_token_id=EOS[0],
        initializer_range=0.1,
    )
    torch.manual_seed(seed)
    return LlamaForCausalLM(config).eval().to("cuda:0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    model_of(0).save_pretrained(path)
    TOKENIZER.save_pretrained(path)
    return path


@contextlib.contextmanager
def serving(folder: Path, *, card: int, engine: str) -> Iterator[str]:
    command = [
        *(sys.executable, "-m", "workings.cli.main", "serve"),
        *(f"model.name_or_path={folder}", "model.device=cuda", "model.dtype=float32", "port=0"),
        *(f"engine.name={engine}", "engine.gpu_memory_utilization=0.1"),
    ]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(card)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, f"the server ended with {process.wait()}"
        yield url
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize("engine", ["transformers", "paged"])
@pytest.mark.parametrize("card", [0, 1])
def test_weights_arrive_and_samples_are_the_trainers(folder: Path, card: int, engine: str) -> None:
    if card >= torch.cuda.device_count():
        pytest.skip("one CUDA device: NCCL needs two")
    with serving(folder, card=card, engine=engine) as url:
        client = ServerEngine(url, model_of(0), TOKENIZER, eos_token_ids=EOS, sync_seconds=60.0)
        with contextlib.closing(client):
            assert ("weights by nccl" in client.where) == (card == 1)
            for version in (1, 2, 3):
                policy = model_of(version)
                client.load_weights(version, named_full_weights(policy))
                local = TransformersEngine(policy, TOKENIZER, eos_token_ids=EOS)
                ours = [s for group in client.generate(REQUESTS, GREEDY) for s in group]
                theirs = [s for group in local.generate(REQUESTS, GREEDY) for s in group]
                assert {sample.weight_version for sample in ours} == {version}
                same = [list(a.ids) == list(b.ids) for a, b in zip(ours, theirs, strict=True)]
                assert sum(same) >= 0.9 * len(same)  # engines may differ in the last bits


def test_a_death_in_a_transfer_between_cards_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device: NCCL needs two")
    with serving(folder, card=1, engine="transformers") as url:
        policy = model_of(1)
        client = ServerEngine(url, policy, TOKENIZER, eos_token_ids=EOS, sync_seconds=20.0)
        with contextlib.closing(client):
            client.load_weights(1, named_full_weights(policy))
            group = client._group
            assert group is not None
            monkeypatch.setattr(client, "_server_lives", lambda: False)
            data = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda:0")
            with pytest.raises(EngineError, match="the other side is gone"):
                # Nobody receives this one.
                group.broadcast(data, seconds=20.0, alive=client._server_lives, what="sending")
