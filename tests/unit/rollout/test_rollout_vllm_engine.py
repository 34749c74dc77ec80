"""How the engine drives vLLM, on a stand-in; `tests/gpu/test_gpu_vllm.py` has the real one."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vllm_stand_in
from tiny import tiny_model, tiny_tokenizer
from workings.errors import ConfigError, EngineError
from workings.models.lora import add_lora
from workings.models.weights import named_full_weights
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.vllm_engine import VLLMEngine
from workings.rollout.vllm_sampler import ExactSampler
from workings.rollout.vllm_start import model_folder

TOKENIZER = tiny_tokenizer()
EOS: int = TOKENIZER.eos_token_id
REQUESTS = [
    Request(prompt_ids=(30,), num_samples=2, seed=1),
    Request(prompt_ids=(40, 41), num_samples=1, seed=2),
]
PLAIN = SamplingParams(temperature=1.0, max_tokens=6)
LOADED = ["begin reload", "end reload", "reset_prefix_cache"]


def names_of(model: Any) -> list[str]:
    return [name for name, _ in named_full_weights(model)]


@pytest.fixture
def policy() -> Any:
    return tiny_model(TOKENIZER)


@pytest.fixture
def llm_class(monkeypatch: pytest.MonkeyPatch, policy: Any) -> type[vllm_stand_in.StandIn]:
    return vllm_stand_in.install(monkeypatch, names_of(policy))


@pytest.fixture
def engine(llm_class: type[vllm_stand_in.StandIn], policy: Any) -> Iterator[VLLMEngine]:
    made = VLLMEngine(policy, TOKENIZER, eos_token_ids=[EOS], dtype=torch.float32)
    llm_class.made.calls.clear()
    yield made
    made.close()


@pytest.fixture
def llm(engine: VLLMEngine, llm_class: type[vllm_stand_in.StandIn]) -> vllm_stand_in.StandIn:
    return llm_class.made


# ------------------------------------------------------------------------------- the start


def test_it_starts_from_an_architecture_and_takes_the_policys_weights(
    llm_class: type[vllm_stand_in.StandIn], policy: Any
) -> None:
    engine = VLLMEngine(
        policy,
        TOKENIZER,
        eos_token_ids=[EOS],
        dtype=torch.bfloat16,
        max_batch_size=1024,
        gpu_memory_utilization=0.4,
        max_model_len=128,
        enforce_eager=True,
    )
    settings = llm_class.made.settings
    folder = settings.pop("model")
    assert not Path(folder).exists()
    assert settings == {
        "dtype": "bfloat16",
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "logprobs_mode": "processed_logprobs",
        "enable_prefix_caching": True,
        "seed": 0,
        "max_num_seqs": 1024,
        "gpu_memory_utilization": 0.4,
        "max_model_len": 128,
        "enforce_eager": True,
        "enable_sleep_mode": torch.cuda.is_available(),
        "compilation_config": {"max_cudagraph_capture_size": 1024},
    }
    assert llm_class.made.calls == LOADED
    runner = llm_class.made.llm_engine.model_executor.driver_worker.worker.model_runner
    assert isinstance(runner.sampler, ExactSampler)
    engine.close()
    assert llm_class.made.calls[-1] == "shutdown"
    with pytest.raises(EngineError, match="the engine is closed"):
        engine.submit(REQUESTS, PLAIN)


def test_the_process_is_as_it_was_after_the_start(
    llm_class: type[vllm_stand_in.StandIn], policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddle(self: Any, **settings: Any) -> None:
        assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("medium")
        vllm_stand_in.StandIn.__init__(self, **settings)

    monkeypatch.setattr(llm_class, "__init__", meddle)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    torch.manual_seed(5)
    random.seed(5)
    before = torch.random.get_rng_state()
    expected = random.random(), torch.get_float32_matmul_precision()
    random.seed(5)
    VLLMEngine(policy, TOKENIZER, eos_token_ids=[EOS]).close()
    assert torch.equal(before, torch.random.get_rng_state())
    assert (random.random(), torch.get_float32_matmul_precision()) == expected
    assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "1"
    assert os.environ["VLLM_NO_USAGE_STATS"] == "1"


def test_what_keeps_it_from_starting_is_said(
    llm_class: type[vllm_stand_in.StandIn], policy: Any
) -> None:
    llm_class.fails = "Free memory on device cuda:0 is less than desired GPU memory utilization"
    with pytest.raises(EngineError, match="could not start: Free memory on device") as caught:
        VLLMEngine(policy, TOKENIZER, eos_token_ids=[EOS])
    assert "gpu_memory_utilization" in str(caught.value.hint)
    with pytest.raises(EngineError, match=r"eos_token_ids=\[5000\] lie outside"):
        VLLMEngine(policy, TOKENIZER, eos_token_ids=[5000])


def test_without_vllm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, policy: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "vllm", None)
    with pytest.raises(ConfigError, match=r"engine.name=vllm needs vLLM") as caught:
        VLLMEngine(policy, TOKENIZER, eos_token_ids=[EOS])
    assert "workings[vllm]" in str(caught.value.hint)


def test_a_folder_has_the_architecture_and_the_weights_asked_for(policy: Any) -> None:
    from safetensors.torch import load_file

    with model_folder(policy) as folder:
        config = json.loads((folder / "config.json").read_text())
        assert config["architectures"] == ["LlamaForCausalLM"]
        assert config["hidden_size"] == 32
        assert not list(folder.glob("*.safetensors"))
    weights = list(named_full_weights(policy))
    with model_folder(policy, iter(weights), dtype=torch.bfloat16) as folder:
        saved = load_file(folder / "model.safetensors")
    assert set(saved) == {name for name, _ in weights}
    assert {tensor.dtype for tensor in saved.values()} == {torch.bfloat16}


# ------------------------------------------------------------------------------- samples


def test_whole_completions(engine: VLLMEngine, llm: vllm_stand_in.StandIn) -> None:
    groups = engine.generate(REQUESTS, PLAIN)
    assert [len(group) for group in groups] == [2, 1]
    assert {sample.finish_reason for group in groups for sample in group} == {"length"}
    assert [len(sample.ids) for group in groups for sample in group] == [6, 6, 6]
    assert groups[1][0].ids[0] == (41 + llm.model.shift) % 90 + 5
    assert not llm.llm_engine.aborted


def test_every_sample_is_a_request_with_its_own_seed(
    engine: VLLMEngine, llm: vllm_stand_in.StandIn
) -> None:
    pending = engine.submit(REQUESTS, PLAIN)
    running = llm.llm_engine.running
    assert list(running) == ["0-0-0", "0-0-1", "0-1-0"]
    assert [row.prompt for row in running.values()] == [[30], [30], [40, 41]]
    assert len({row.params.seed for row in running.values()}) == 3
    kinds = {row.params.output_kind for row in running.values()}
    assert kinds == {vllm_stand_in.RequestOutputKind.FINAL_ONLY}
    engine.collect(pending)


def test_a_stop_string_ends_a_completion_and_vllm_is_told(
    engine: VLLMEngine, llm: vllm_stand_in.StandIn
) -> None:
    (letter,) = TOKENIZER.encode("q")
    llm.script[3] = letter
    sampling = SamplingParams(temperature=1.0, max_tokens=20, stop=("q",))
    groups = engine.generate(REQUESTS, sampling)
    assert llm.llm_engine.aborted == ["0-0-0", "0-0-1", "0-1-0"]
    for sample in (sample for group in groups for sample in group):
        assert (len(sample.ids), sample.finish_reason) == (4, "stop")
        assert sample.text.endswith("q")


def test_eos_ends_a_completion(engine: VLLMEngine, llm: vllm_stand_in.StandIn) -> None:
    llm.script[2] = EOS
    [[first, _], _] = engine.generate(REQUESTS, PLAIN)
    assert (first.ids[-1], len(first.ids), first.finish_reason) == (EOS, 3, "eos")


def test_batches_grow_together_and_are_collected_in_any_order(engine: VLLMEngine) -> None:
    first, second = engine.submit(REQUESTS[:1], PLAIN), engine.submit(REQUESTS[1:], PLAIN)
    assert not first.ready()
    assert len(engine.collect(second)) == 1
    assert first.ready()
    assert len(engine.collect(first)[0]) == 2
    with pytest.raises(EngineError, match="a VLLMBatch was not submitted to this engine"):
        engine.collect(first)


def test_requests_that_cannot_be_answered_are_refused(engine: VLLMEngine) -> None:
    with pytest.raises(EngineError, match="the model has 256"):
        engine.submit(REQUESTS, SamplingParams(max_tokens=300))
    with pytest.raises(EngineError, match="vLLM applies min_p first"):
        engine.submit(REQUESTS, SamplingParams(min_p=0.1, top_p=0.9))


def test_a_request_that_vllm_refuses_takes_its_batch_with_it(
    engine: VLLMEngine, llm: vllm_stand_in.StandIn
) -> None:
    llm.llm_engine.refuses = True
    with pytest.raises(EngineError, match="did not take a request: the prompt is too long"):
        engine.submit(REQUESTS, PLAIN)
    assert llm.llm_engine.aborted == ["0-0-0", "0-0-1", "0-1-0"]
    llm.llm_engine.refuses = False
    assert len(engine.generate(REQUESTS, PLAIN)) == 2


def test_an_error_of_vllm_takes_all_batches_with_it(
    engine: VLLMEngine, llm: vllm_stand_in.StandIn
) -> None:
    first, second = engine.submit(REQUESTS, PLAIN), engine.submit(REQUESTS, PLAIN)
    llm.breaks = True
    with pytest.raises(EngineError, match="vLLM failed while sampling: CUDA error"):
        engine.collect(first)
    assert len(llm.llm_engine.aborted) == 6
    with pytest.raises(EngineError, match="was not submitted"):
        engine.collect(second)


def test_a_request_that_vllm_lost_is_an_error_and_no_hang(
    engine: VLLMEngine, llm: vllm_stand_in.StandIn
) -> None:
    pending = engine.submit(REQUESTS, PLAIN)
    llm.llm_engine.running.clear()
    with pytest.raises(EngineError, match="vLLM has lost a request"):
        engine.collect(pending)


# ------------------------------------------------------------------------------- weights


def test_new_weights_drop_the_cached_prefixes(
    engine: VLLMEngine, llm: vllm_stand_in.StandIn
) -> None:
    before = engine.generate(REQUESTS, PLAIN)
    engine.load_weights(3, named_full_weights(tiny_model(TOKENIZER, seed=4)))
    assert llm.calls == LOADED
    after = engine.generate(REQUESTS, PLAIN)
    assert engine.weight_version == 3
    assert {sample.weight_version for group in after for sample in group} == {3}
    assert before[0][0].ids != after[0][0].ids


def test_weights_that_are_not_whole_are_refused_until_a_whole_set_comes(
    engine: VLLMEngine, llm: vllm_stand_in.StandIn, policy: Any
) -> None:
    whole = list(named_full_weights(policy))
    with pytest.raises(EngineError, match=r"was not given 2 of its weights, such as model\."):
        engine.load_weights(1, iter(whole[2:]))
    with pytest.raises(EngineError, match="no whole set of weights"):
        engine.submit(REQUESTS, PLAIN)
    with pytest.raises(EngineError, match="did not take the weights: There is no module"):
        engine.load_weights(1, iter([*whole, ("other", whole[0][1])]))
    assert llm.calls.count("begin reload") == llm.calls.count("end reload") == 2
    assert engine.weight_version == 0
    engine.load_weights(2, iter(whole))
    assert len(engine.generate(REQUESTS, PLAIN)) == 2


def test_weights_do_not_come_while_a_batch_is_out(engine: VLLMEngine, policy: Any) -> None:
    pending = engine.submit(REQUESTS, PLAIN)
    for call in (lambda: engine.load_weights(1, named_full_weights(policy)), engine.sleep):
        with pytest.raises(EngineError, match="while 1 submitted batches are not collected"):
            call()
    engine.collect(pending)


def test_prefixes_that_vllm_keeps_are_an_error(
    engine: VLLMEngine, llm: vllm_stand_in.StandIn, policy: Any
) -> None:
    llm.resets = False
    with pytest.raises(EngineError, match="kept cached prefixes of the old weights"):
        engine.load_weights(1, named_full_weights(policy))


def test_sleep_drops_the_weights_and_loading_wakes_them_first(
    engine: VLLMEngine, llm: vllm_stand_in.StandIn, policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_sleeps", True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    engine.sleep()
    engine.sleep()
    assert llm.calls == ["sleep 2"]
    with pytest.raises(EngineError, match="no whole set of weights"):
        engine.submit(REQUESTS, PLAIN)
    engine.load_weights(1, named_full_weights(policy))
    assert llm.calls[1:] == ["wake weights", *LOADED]
    with pytest.raises(EngineError, match="the engine is asleep"):
        engine.submit(REQUESTS, PLAIN)
    engine.wake()
    engine.wake()
    assert llm.calls[-1] == "wake kv_cache"
    assert llm.calls.count("wake kv_cache") == 1
    assert len(engine.generate(REQUESTS, PLAIN)) == 2
    engine.sleep()
    engine.wake()
    assert llm.calls[-3:] == ["sleep 2", "wake weights", "wake kv_cache"]
    with pytest.raises(EngineError, match="no whole set of weights"):
        engine.submit(REQUESTS, PLAIN)


def test_without_cuda_sleep_only_refuses_samples(
    engine: VLLMEngine, llm: vllm_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_sleeps", False)
    engine.sleep()
    with pytest.raises(EngineError, match="the engine is asleep"):
        engine.submit(REQUESTS, PLAIN)
    engine.wake()
    assert len(engine.generate(REQUESTS, PLAIN)) == 2
    assert llm.calls == []


# ------------------------------------------------------------------------------- adapters


def adapted(seed: int) -> Any:
    model = tiny_model(TOKENIZER)
    return add_lora(model, rank=9, alpha=4.0, dropout=0.0, targets=("q_proj",), seed=seed)


def test_an_adapter_is_exchanged_under_a_new_id_each_time(
    llm_class: type[vllm_stand_in.StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = adapted(1)
    engine = VLLMEngine(policy, TOKENIZER, eos_token_ids=[EOS], lora_by_adapter=True)
    llm = llm_class.made
    names = ("enable_lora", "max_loras", "max_lora_rank", "load_format")
    assert [llm.settings[name] for name in names] == [True, 1, 16, "safetensors"]
    assert llm.calls == ["add_lora 1", "reset_prefix_cache"]
    engine.load_weights(5, named_full_weights(policy))
    assert llm.calls[2:] == ["remove_lora 1", "add_lora 2", "reset_prefix_cache"]
    pending = engine.submit(REQUESTS, PLAIN)
    assert {row.lora.lora_int_id for row in llm.llm_engine.running.values()} == {2}
    assert engine.collect(pending)[0][0].weight_version == 5
    with pytest.raises(EngineError, match="reads the adapter of its own policy"):
        engine.load_weights(6, named_full_weights(adapted(2)))
    monkeypatch.setattr(engine, "_sleeps", True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    engine.sleep()
    engine.wake()
    assert llm.calls[-3:] == ["sleep 1", "wake weights", "wake kv_cache"]
    assert len(engine.generate(REQUESTS, PLAIN)) == 2  # the base was kept
    engine.close()


def test_adapters_where_there_are_none_are_refused(engine: VLLMEngine, policy: Any) -> None:
    with pytest.raises(EngineError, match="was given an adapter, but takes full weights"):
        engine.load_adapter(1, iter(()))
    with pytest.raises(EngineError, match="needs a policy with an adapter"):
        VLLMEngine(policy, TOKENIZER, eos_token_ids=[EOS], lora_by_adapter=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_an_adapter_is_not_applied_in_float32(
    llm_class: type[vllm_stand_in.StandIn], monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    llm_class.fails = "it got as far as this"
    expected = "kernels for adapters take torch.bfloat16" if dtype == torch.float32 else "this"
    with pytest.raises(EngineError, match=expected):
        VLLMEngine(adapted(1), TOKENIZER, eos_token_ids=[EOS], dtype=dtype, lora_by_adapter=True)


def test_an_adapter_that_is_too_wide_is_refused(llm_class: type[vllm_stand_in.StandIn]) -> None:
    wide = add_lora(
        tiny_model(TOKENIZER), rank=600, alpha=4.0, dropout=0.0, targets=("q_proj",), seed=0
    )
    with pytest.raises(EngineError, match="rank 600 is too wide for vLLM"):
        VLLMEngine(wide, TOKENIZER, eos_token_ids=[EOS], lora_by_adapter=True)
