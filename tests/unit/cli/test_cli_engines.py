"""An engine in a process of its own, from the settings of a run."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from tiny import save_tiny
from workings.cli import engines
from workings.cli.build import build_policy
from workings.cli.engines import EngineBuild, build_engine, only_card
from workings.config.sections import EngineConfig, LoraConfig, ModelConfig
from workings.errors import EngineError
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.process_engine import ProcessEngine
from workings.rollout.transformers_engine import TransformersEngine

SAMPLING = SamplingParams(max_tokens=6)
REQUESTS = [Request(prompt_ids=(10, 11, 12), num_samples=2, seed=3), Request(prompt_ids=(9,))]


@pytest.mark.parametrize(
    ("device", "visible", "wanted", "left"),
    [
        ("cpu", None, "cpu", None),
        ("cuda", "2,3", "cuda", "2,3"),
        ("cuda:1", None, "cuda", "1"),
        ("cuda:1", "2,3", "cuda", "3"),
        ("cuda:0", "GPU-4f,GPU-a1", "cuda", "GPU-4f"),
    ],
)
def test_the_process_sees_its_own_card_alone(
    device: str,
    visible: str | None,
    wanted: str,
    left: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = {} if visible is None else {engines.VISIBLE: visible}
    monkeypatch.setattr(engines.os, "environ", environment)
    assert only_card(device) == wanted
    assert environment.get(engines.VISIBLE) == left


@pytest.mark.parametrize("device", ["cuda:2", "cuda:x"])
def test_a_card_that_is_not_there_is_named(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines.os, "environ", {engines.VISIBLE: "4,5"})
    with pytest.raises(EngineError, match=f"engine.device={device}: there is no such card"):
        only_card(device)


def plain_model(folder: Path, **settings: Any) -> ModelConfig:
    model = save_tiny(folder / "tiny")
    return ModelConfig(name_or_path=str(model), dtype="float32", device="cpu", **settings)


def test_it_is_built_here_as_in_its_process_without_adapters(tmp_path: Path) -> None:
    model = plain_model(tmp_path, lora=LoraConfig(rank=2, alpha=4, targets=("q_proj",)))
    build = EngineBuild(
        engine=EngineConfig(), model=model, device="cpu", num_threads=torch.get_num_threads()
    )
    engine = pickle.loads(pickle.dumps(build))()
    assert isinstance(engine, TransformersEngine)
    samples = engine.generate(REQUESTS, SAMPLING)
    assert [len(group) for group in samples] == [2, 1]


def test_a_process_of_its_own_has_the_adapters_weights_from_the_start(tmp_path: Path) -> None:
    """Merged, they sample what the trainer's own process samples."""
    model = plain_model(tmp_path, lora=LoraConfig(rank=2, alpha=4, targets=("q_proj", "v_proj")))
    policy = build_policy(model, seed=0)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if ".lora_B." in name:
                parameter.normal_(std=2.0)
    here, _ = build_engine(EngineConfig(), policy)
    away, line = build_engine(EngineConfig(own_process=True), policy)
    try:
        assert isinstance(away, ProcessEngine)
        assert line.endswith("in a process of its own on cpu")
        before = here.generate(REQUESTS, SAMPLING)
        sampled = away.generate(REQUESTS, SAMPLING)
        assert [[s.ids for s in group] for group in sampled] == [
            [s.ids for s in group] for group in before
        ]
        for group, other in zip(sampled, before, strict=True):
            for sample, wanted in zip(group, other, strict=True):
                assert sample.sampling_logprobs == pytest.approx(wanted.sampling_logprobs, abs=1e-5)
    finally:
        away.close()


def test_a_process_whose_weights_cannot_be_sent_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    class Refusing:
        def __init__(self, build: EngineBuild) -> None:
            self.build = build

        def load_weights(self, version: int, tensors: Any) -> None:
            raise EngineError("no weights, please")

        def close(self) -> None:
            closed.append(copy.copy(self.build.device))

    monkeypatch.setattr(engines, "ProcessEngine", Refusing)
    policy = build_policy(plain_model(tmp_path), seed=0)
    with pytest.raises(EngineError, match="no weights, please"):
        build_engine(EngineConfig(own_process=True, device="cpu"), policy)
    assert closed == ["cpu"]
