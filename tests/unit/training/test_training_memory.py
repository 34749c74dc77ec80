"""What a run holds in memory, and when: an engine that rests, masters elsewhere, no last save."""

from __future__ import annotations

import json

import pytest
import torch

from grpo_loop import TOKENIZER, Loop, NotedEngine, assert_resumes_exactly, drawn
from tiny import tiny_model
from workings.config.sections import EngineConfig, OptimizerConfig
from workings.errors import CheckpointError, ConfigError
from workings.models.tensors import load_tensors
from workings.rollout.engine import Request, SamplingParams
from workings.training.checkpointer import OPTIMIZER

BFLOAT16 = {"optimizer": {"learning_rate": 0.01, "offload": True}}


class RestingEngine(NotedEngine):
    """Notes what it is asked to do, and refuses to sample asleep."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.calls, self.asleep = [], False

    def submit(self, requests, sampling):
        assert not self.asleep
        self.calls.append("sample")
        return super().submit(requests, sampling)

    def load_weights(self, version, tensors):
        self.calls.append(f"load {version} {'asleep' if self.asleep else 'awake'}")
        super().load_weights(version, tensors)

    def sleep(self):
        self.calls.append("sleep")
        self.asleep = True

    def wake(self):
        if self.asleep:
            self.calls.append("wake")
        self.asleep = False


def calls(folder, **engine):
    loop = Loop(folder, engine=engine)
    loop.engine = RestingEngine(TOKENIZER, drawn, logprob=-4.7)
    loop.run()
    return loop.engine.calls


def test_the_engine_sleeps_while_the_trainer_works(tmp_path):
    assert calls(tmp_path / "rests") == [
        "load 0 awake",
        *("sample", "sleep", "load 1 asleep", "wake"),
        *("sample", "sleep", "load 2 asleep", "wake"),
    ]
    assert calls(tmp_path / "awake", sleep=False) == [
        *("load 0 awake", "sample", "load 1 awake", "sample", "load 2 awake")
    ]


def test_an_engine_that_rested_after_an_evaluation_gets_its_weights_again(tmp_path):
    class Forgetful(RestingEngine):
        """Has no weights after a sleep."""

        whole = True

        def submit(self, requests, sampling):
            assert self.whole
            return super().submit(requests, sampling)

        def load_weights(self, version, tensors):
            super().load_weights(version, tensors)
            self.whole = True

        def sleep(self):
            super().sleep()
            self.whole = False

    loop = Loop(tmp_path, evaluation={"every_steps": 1})
    engine = loop.engine = Forgetful(TOKENIZER, drawn, logprob=-4.7)

    def evaluate(step):
        engine.wake()
        engine.generate([Request(prompt_ids=(5,))], SamplingParams(max_tokens=4))
        engine.sleep()
        return {"accuracy": 0.5}

    loop.run(evaluate=evaluate)
    begun = ("load 0 awake", "sample", "sleep", "load 0 asleep", "wake")
    first = ("sample", "sleep", "load 1 asleep", "wake", "sample", "sleep", "load 1 asleep", "wake")
    second = ("sample", "sleep", "load 2 asleep", "wake", "sample", "sleep", "load 2 asleep")
    assert engine.calls == [*begun, *first, *second, "wake"]


def test_only_an_engine_on_the_trainers_device_rests():
    assert EngineConfig().rests
    assert not EngineConfig(sleep=False).rests
    assert EngineConfig(own_process=True).rests
    assert not EngineConfig(own_process=True, device="cuda:1").rests


def test_a_run_without_a_last_save_writes_no_weights(tmp_path):
    loop = Loop(tmp_path)
    loop.checkpointer.at_end = False
    loop.run()
    assert not list(tmp_path.rglob("*.safetensors"))
    assert (tmp_path / "metrics.jsonl").is_file()


def bfloat16_loop(folder, **settings):
    model = tiny_model(TOKENIZER).to(torch.bfloat16)
    return Loop(folder, model=model, **BFLOAT16, **settings)


def test_a_run_with_masters_in_cpu_memory_resumes_exactly(tmp_path):
    assert_resumes_exactly(bfloat16_loop, tmp_path, at=1)


def test_a_checkpoint_holds_the_masters_and_the_rounded_weights(tmp_path):
    loop = bfloat16_loop(tmp_path).run()
    folder = max(tmp_path.rglob(f"step_*/{OPTIMIZER}")).parent
    stored = load_tensors(folder / OPTIMIZER)
    masters = [state["master"] for state in stored["state"].values()]
    assert {master.dtype for master in masters} == {torch.float32}
    rounded = sorted(master.to(torch.bfloat16).float().sum().item() for master in masters)
    assert rounded == sorted(p.float().sum().item() for p in loop.model.parameters())
    assert any(not m.equal(m.to(torch.bfloat16).float()) for m in masters)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"


@pytest.mark.parametrize("masters_first", [True, False])
def test_a_checkpoint_goes_on_only_where_no_master_is_lost(masters_first, tmp_path):
    def loop(masters, **settings):
        make = bfloat16_loop if masters else Loop
        return make(tmp_path, **settings)

    loop(masters_first).run_until(1)
    with pytest.raises(CheckpointError, match="would round it or lose its float32 master"):
        loop(not masters_first, resume="latest").run()


def test_offloaded_gradients_train_as_resident_ones(tmp_path):
    loops = []
    for offload_gradients in (False, True):
        optimizer = {**BFLOAT16["optimizer"], "offload_gradients": offload_gradients}
        model = tiny_model(TOKENIZER).to(torch.bfloat16)
        settings = {"optimizer": optimizer, "batch": {"microbatch_rows": 3}}
        loops.append(Loop(tmp_path / str(offload_gradients), model=model, **settings).run())
    numbers = [[(row["loss"], row["grad_norm"]) for row in loop.rows] for loop in loops]
    assert numbers[0] == [pytest.approx(row, rel=1e-5) for row in numbers[1]]
    for one, other in zip(*(loop.model.parameters() for loop in loops), strict=True):
        assert torch.allclose(one.float(), other.float(), rtol=2**-7, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"offload_gradients": True}, "optimizer.offload_gradients=True has no effect"),
        ({"name": "adamw_8bit", "offload": True}, "optimizer.offload=True has no effect"),
        ({"name": "adamw_8bit", "rmsprop_alpha": 0.9}, "rmsprop_alpha=0.9 has no effect"),
    ],
)
def test_settings_that_nothing_reads_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        OptimizerConfig.model_validate(settings)
