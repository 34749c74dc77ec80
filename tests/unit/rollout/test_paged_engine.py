"""The paged engine against the transformers engine: the same weights and seeds, the same samples.

Everything but the kernels and the CUDA graphs runs here: pages, scheduler, sampler, stop strings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from tiny import tiny_model, tiny_tokenizer
from workings.errors import EngineError
from workings.models.lora import add_lora
from workings.models.weights import named_full_weights
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.paged import batch as paged_batch
from workings.rollout.paged.cache import PAGE_SIZE
from workings.rollout.paged.engine import PagedEngine
from workings.rollout.paged.scheduler import Scheduler
from workings.rollout.transformers_engine import TransformersEngine
from workings.types import Sample

TOKENIZER = tiny_tokenizer()
EOS = TOKENIZER.eos_token_id
TOLERANCE = 1e-5
"""Of log-probabilities: both normalise in float32, whatever the dtype of the model."""
COMMON: dict[str, Any] = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "eos_token_id": EOS,
    "bos_token_id": 1,
}
LONG_ROTATION = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**COMMON, tie_word_embeddings=True),
    "llama with scaled rotation": lambda: transformers.LlamaConfig(
        **COMMON, tie_word_embeddings=False, rope_parameters=LONG_ROTATION
    ),
    "qwen2": lambda: transformers.Qwen2Config(**COMMON, tie_word_embeddings=False),
    "qwen3": lambda: transformers.Qwen3Config(**COMMON, head_dim=8, tie_word_embeddings=True),
}
SETTINGS = {
    "plain": SamplingParams(max_tokens=30),
    "greedy": SamplingParams(temperature=0, max_tokens=30),
    "hot": SamplingParams(temperature=1.7, max_tokens=20),
    "cut": SamplingParams(temperature=0.7, top_k=20, top_p=0.8, min_p=0.02, max_tokens=30),
    "no EOS at first": SamplingParams(max_tokens=30, min_tokens=12),
    "stop strings": SamplingParams(max_tokens=30, stop=("e", "ll", "7")),
}


def of_family(name: str, dtype: torch.dtype = torch.float64) -> Any:
    """A tiny random model with biases and norms that matter."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(FAMILIES[name]()).to(dtype).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "bias" in parameter_name or "norm" in parameter_name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def requests(lengths: tuple[int, ...] = (1, 5, 17, 33, 40, 16), num_samples: int = 3) -> Any:
    generator = torch.Generator().manual_seed(1)
    return [
        Request(
            prompt_ids=tuple(
                torch.randint(4, len(TOKENIZER), (length,), generator=generator).tolist()
            ),
            num_samples=num_samples,
            seed=seed,
        )
        for seed, length in enumerate(lengths)
    ]


def paged(model: Any, **settings: Any) -> PagedEngine:
    return PagedEngine(model, TOKENIZER, **{"eos_token_ids": [EOS], **settings})


def assert_same(ours: list[list[Sample]], theirs: list[list[Sample]], tolerance: float) -> None:
    assert [len(group) for group in ours] == [len(group) for group in theirs]
    for mine, other in zip(
        [sample for group in ours for sample in group],
        [sample for group in theirs for sample in group],
        strict=True,
    ):
        assert list(mine.ids) == list(other.ids)
        assert mine.text == other.text
        assert mine.finish_reason == other.finish_reason
        assert mine.sampling_logprobs == pytest.approx(list(other.sampling_logprobs), abs=tolerance)
        assert mine.kept_mass == pytest.approx(list(other.kept_mass), abs=tolerance)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_samples_what_the_transformers_engine_samples(name: str) -> None:
    model = of_family(name)
    theirs = TransformersEngine(model, TOKENIZER, eos_token_ids=[EOS])
    ours = paged(model)
    for sampling in SETTINGS.values():
        wanted = theirs.generate(requests(), sampling)
        assert_same(ours.generate(requests(), sampling), wanted, TOLERANCE)


@pytest.mark.parametrize("sampling", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("max_batch_size", [1, 4, 18])
def test_neither_the_batch_nor_a_full_cache_changes_a_sample(
    max_batch_size: int, sampling: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    preempted: list[object] = []
    preempt = Scheduler.preempt

    def counted(self: Scheduler) -> None:
        preempted.append(self.youngest)
        preempt(self)

    monkeypatch.setattr(Scheduler, "preempt", counted)
    model = of_family("qwen2")
    wanted = paged(model).generate(requests(), sampling)
    assert not preempted
    small = paged(model, max_batch_size=max_batch_size, cache_tokens=8 * PAGE_SIZE)
    assert_same(small.generate(requests(), sampling), wanted, 1e-9)
    if max_batch_size == 18 and sampling is SETTINGS["no EOS at first"]:
        assert preempted


@pytest.mark.parametrize("tokens", [1, 7, 40])
def test_prompts_in_pieces_give_the_same(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = of_family("llama")
    wanted = paged(model).generate(requests(), SETTINGS["plain"])
    monkeypatch.setattr("workings.rollout.paged.engine.PREFILL_TOKENS", tokens)
    assert_same(paged(model).generate(requests(), SETTINGS["plain"]), wanted, 1e-9)


@pytest.mark.parametrize("steps", [1, 3])
def test_steps_of_a_launch_change_nothing(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = of_family("llama")
    wanted = paged(model).generate(requests(), SETTINGS["stop strings"])
    monkeypatch.setattr("workings.rollout.paged.engine.STEPS_PER_LAUNCH", steps)
    assert_same(paged(model).generate(requests(), SETTINGS["stop strings"]), wanted, 1e-9)


def test_one_launch_at_a_time_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = of_family("llama")
    wanted = paged(model).generate(requests(), SETTINGS["stop strings"])
    monkeypatch.setattr(paged_batch, "LAUNCHES_UNDER_WAY", 1)
    assert_same(paged(model).generate(requests(), SETTINGS["stop strings"]), wanted, 1e-9)


def test_logprobs_are_those_of_a_full_forward_pass() -> None:
    model = of_family("qwen3")
    sampling = SETTINGS["cut"]
    for request, group in zip(requests(), paged(model).generate(requests(), sampling), strict=True):
        for sample in group:
            ids = torch.tensor([[*request.prompt_ids, *sample.ids]])
            with torch.no_grad():
                logits = model(input_ids=ids).logits[0].double() / sampling.temperature
            logprobs = logits.log_softmax(-1)[len(request.prompt_ids) - 1 : -1]
            chosen = logprobs.gather(-1, torch.tensor(sample.ids)[:, None])[:, 0]
            assert sample.sampling_logprobs == pytest.approx(chosen.tolist(), abs=TOLERANCE)


def test_prefix_ids_are_sampled_from_and_not_returned() -> None:
    model = of_family("llama")
    whole = requests((20,))[0].prompt_ids
    as_prompt = Request(prompt_ids=whole, num_samples=2, seed=3)
    as_prefix = Request(prompt_ids=whole[:9], prefix_ids=whole[9:], num_samples=2, seed=3)
    engine = paged(model)
    wanted = engine.generate([as_prompt], SETTINGS["plain"])
    assert_same(engine.generate([as_prefix], SETTINGS["plain"]), wanted, 0)


def test_a_request_may_be_shorter_than_the_rest() -> None:
    model = of_family("llama")
    short = Request(prompt_ids=(5, 6), num_samples=2, seed=1, max_tokens=3)
    samples = paged(model, eos_token_ids=[]).generate([short, *requests((4,))], SETTINGS["plain"])
    assert [len(sample.ids) for sample in samples[0]] == [3, 3]
    assert [len(sample.ids) for sample in samples[1]] == [30, 30, 30]
    assert samples[0][0].finish_reason == "length"


def test_logprobs_can_be_left_out() -> None:
    sampling = SamplingParams(max_tokens=4, logprobs=False)
    samples = paged(of_family("llama")).generate(requests(), sampling)
    assert all(math.isnan(value) for g in samples for s in g for value in s.sampling_logprobs)


def change(model: Any) -> None:
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.2 * torch.randn_like(parameter))


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_new_weights_are_sampled_from_once_they_are_loaded(name: str) -> None:
    model = of_family(name)
    engine = paged(model)
    old = engine.generate(requests(), SETTINGS["plain"])
    change(model)
    assert_same(engine.generate(requests(), SETTINGS["plain"]), old, 0)
    engine.load_weights(7, named_full_weights(model))
    new = engine.generate(requests(), SETTINGS["plain"])
    assert engine.weight_version == new[0][0].weight_version == 7
    fresh = TransformersEngine(model, TOKENIZER, eos_token_ids=[EOS])
    assert_same(new, fresh.generate(requests(), SETTINGS["plain"]), TOLERANCE)


def test_an_adapter_is_merged_on_the_way_and_the_base_left_alone() -> None:
    base = of_family("qwen2", torch.float32)
    model = add_lora(
        base, rank=4, alpha=8, dropout=0.0, targets=["q_proj", "v_proj", "down_proj"], seed=0
    )
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    change(model)
    engine = paged(model)
    for version in range(20):
        engine.load_weights(version, named_full_weights(model))
    theirs = TransformersEngine(model, TOKENIZER, eos_token_ids=[EOS])
    wanted = theirs.generate(requests(), SETTINGS["greedy"])
    assert_same(engine.generate(requests(), SETTINGS["greedy"]), wanted, 1e-3)
    for name, tensor in base.state_dict().items():
        if "lora" not in name:
            assert torch.equal(tensor, before[name])


def test_a_bfloat16_engine_is_near_its_float32_policy() -> None:
    model = of_family("llama", torch.float32)
    engine = paged(model, dtype=torch.bfloat16)
    gaps = []
    for request, group in zip(
        requests(), engine.generate(requests(), SETTINGS["plain"]), strict=True
    ):
        for sample in group:
            with torch.no_grad():
                logits = model(torch.tensor([[*request.prompt_ids, *sample.ids]])).logits[0]
            logprobs = logits.log_softmax(-1)[len(request.prompt_ids) - 1 : -1]
            chosen = logprobs.gather(-1, torch.tensor(sample.ids)[:, None])[:, 0]
            gaps += (chosen - torch.tensor(sample.sampling_logprobs)).tolist()
    assert 1e-4 < torch.tensor(gaps).abs().mean() < 0.1


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (lambda good: good[:-1], "was not given 1 of its weights"),
        (lambda good: [*good, ("model.extra", torch.ones(1))], "model.extra, which its model"),
        (lambda good: [(good[0][0], torch.ones(2, 2)), *good[1:]], r"of shape \[2, 2\]"),
    ],
)
def test_a_wrong_set_of_weights_is_refused_and_nothing_is_sampled(
    weights: Callable[[list[tuple[str, torch.Tensor]]], Any], message: str
) -> None:
    model = of_family("llama")
    engine = paged(model)
    good = list(named_full_weights(model))
    with pytest.raises(EngineError, match=message):
        engine.load_weights(1, weights(good))
    with pytest.raises(EngineError, match="the weights are a mixture"):
        engine.generate(requests(), SETTINGS["plain"])
    engine.load_weights(1, good)
    engine.generate(requests(), SETTINGS["plain"])


def test_sleep_wake_and_close() -> None:
    engine = paged(of_family("llama"))
    wanted = engine.generate(requests(), SETTINGS["plain"])
    engine.sleep()
    with pytest.raises(EngineError, match="asleep"):
        engine.generate(requests(), SETTINGS["plain"])
    engine.wake()
    assert_same(engine.generate(requests(), SETTINGS["plain"]), wanted, 0)
    engine.close()
    engine.close()
    for call in (
        lambda: engine.generate(requests(), SETTINGS["plain"]),
        lambda: engine.load_weights(1, []),
    ):
        with pytest.raises(EngineError, match="closed"):
            call()


def test_a_call_can_be_aborted_and_the_next_one_is_whole() -> None:
    engine = paged(of_family("llama"))
    wanted = engine.generate(requests(), SETTINGS["plain"])
    decode = TOKENIZER.decode

    class Aborting:
        """Aborts when the first completion is decoded, as another thread might."""

        def decode(self, *arguments: Any, **settings: Any) -> str:
            engine.abort()
            return str(decode(*arguments, **settings))

    engine._tokenizer = Aborting()  # type: ignore[assignment]
    with pytest.raises(EngineError, match="aborted"):
        engine.generate(requests(), SETTINGS["plain"])
    engine._tokenizer = TOKENIZER
    assert_same(engine.generate(requests(), SETTINGS["plain"]), wanted, 0)


def test_broken_weights_raise_instead_of_sampling_noise() -> None:
    model = of_family("llama")
    with torch.no_grad():
        model.model.norm.weight[0] = torch.nan
    with pytest.raises(EngineError, match="not finite"):
        paged(model).generate(requests(), SETTINGS["plain"])


def test_bad_requests_raise() -> None:
    engine = paged(of_family("llama"), cache_tokens=2 * PAGE_SIZE)
    for request, message in (
        (Request(prompt_ids=()), "empty prompt"),
        (Request(prompt_ids=(1, 10_000)), "token id 10000, outside"),
        (Request(prompt_ids=(1,), num_samples=0), "num_samples=0"),
        (Request(prompt_ids=(5,) * 250), "280 positions; the model has 256"),
        (Request(prompt_ids=(5,) * 20), "may take 50 tokens; the key-value cache holds 32"),
    ):
        with pytest.raises(EngineError, match=message):
            engine.generate([request], SETTINGS["plain"])
    assert engine.generate([], SETTINGS["plain"]) == []


def test_bad_settings_raise() -> None:
    model = of_family("llama")
    for settings, message in (
        ({"max_batch_size": 0}, "max_batch_size=0"),
        ({"eos_token_ids": [3, 999]}, r"\[999\] lie outside"),
        ({"memory_utilization": 0.0}, "memory_utilization=0.0"),
    ):
        with pytest.raises(EngineError, match=message):
            paged(model, **settings)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (lambda: transformers.MistralConfig(**COMMON), "models of type 'mistral'"),
        (
            lambda: transformers.Qwen2Config(
                **COMMON, use_sliding_window=True, sliding_window=8, max_window_layers=1
            ),
            "sliding_attention",
        ),
        (lambda: transformers.LlamaConfig(**COMMON, hidden_act="gelu"), "activation 'gelu'"),
        (lambda: transformers.LlamaConfig(**COMMON, attention_bias=True), "output of attention"),
        (lambda: transformers.LlamaConfig(**COMMON, mlp_bias=True), "feed-forward layers"),
        (
            lambda: transformers.LlamaConfig(
                **COMMON,
                rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
            ),
            "rotary embeddings of type 'dynamic'",
        ),
    ],
)
def test_other_models_are_refused_with_an_engine_that_can(config: Any, message: str) -> None:
    model = transformers.AutoModelForCausalLM.from_config(config())
    with pytest.raises(EngineError, match=message) as caught:
        paged(model)
    assert "engine.name=vllm" in str(caught.value.hint)


def test_the_settings_in_effect_are_printable() -> None:
    described = paged(tiny_model(TOKENIZER)).describe(SETTINGS["cut"])
    assert "temperature 0.7" in described
    assert "generation_config is not read" in described
