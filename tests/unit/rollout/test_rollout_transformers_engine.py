"""The transformers engine against `generate` and against full forward passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from transformers import GenerationConfig, MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from tiny import tiny_model, tiny_tokenizer
from workings.errors import EngineError
from workings.rollout import generation
from workings.rollout.causal_model import CausalModel
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.transformers_engine import TransformersEngine
from workings.types import Sample

TOKENIZER = tiny_tokenizer()
EOS = TOKENIZER.eos_token_id
TEXTS = ("hello", "What is 3+4? A long question. more words here", "a", "zz top", "hello. me")
GREEDY = SamplingParams(temperature=0, max_tokens=24)


def requests(*, num_samples: int = 1, texts: tuple[str, ...] = TEXTS) -> list[Request]:
    return [
        Request(prompt_ids=tuple(TOKENIZER.encode(text)), num_samples=num_samples, seed=seed)
        for seed, text in enumerate(texts)
    ]


def engine(model: Any, **settings: Any) -> TransformersEngine:
    return TransformersEngine(model, TOKENIZER, **{"eos_token_ids": [EOS], **settings})


def reference(model: Any, prompt: tuple[int, ...], max_tokens: int) -> list[int]:
    """`generate(do_sample=False)` on one prompt, without its prompt."""
    ids = torch.tensor([prompt])
    settings = GenerationConfig(
        do_sample=False, max_new_tokens=max_tokens, eos_token_id=EOS, pad_token_id=0
    )
    output = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    tokens: list[int] = output[0, len(prompt) :].tolist()
    return tokens


def full_logprobs(model: Any, request: Request, sample: Sample, temperature: float) -> torch.Tensor:
    """Log-softmax [tokens, vocabulary] of the sampled positions from one forward pass."""
    before = [*request.prompt_ids, *request.prefix_ids]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*before, *sample.ids]])).logits[0]
    return torch.log_softmax(logits.double() / temperature, -1)[len(before) - 1 : -1]


def of_family(name: str) -> Any:
    """A tiny random model of another family, in float64."""
    common: dict[str, Any] = {
        "vocab_size": len(TOKENIZER),
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "max_position_embeddings": 128,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        "eos_token_id": EOS,
        "bos_token_id": 1,
    }
    configs: dict[str, Callable[[], Any]] = {
        "qwen2": lambda: transformers.Qwen2Config(**common),
        "qwen3": lambda: transformers.Qwen3Config(**common),
        "mistral": lambda: transformers.MistralConfig(**common, sliding_window=7),
        "gemma3": lambda: transformers.Gemma3TextConfig(
            **common,
            sliding_window=7,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
        "gpt2": lambda: transformers.GPT2Config(
            vocab_size=len(TOKENIZER), n_embd=16, n_layer=3, n_head=4, n_positions=128
        ),
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(configs[name]())
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


@pytest.mark.parametrize("max_batch_size", [2, 3, 64])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_D9_greedy_equals_generate_on_mixed_lengths(max_batch_size: int, attention: str) -> None:
    model = tiny_model(TOKENIZER)
    model.set_attn_implementation(attention)
    asked = requests(num_samples=2)
    groups = engine(model, max_batch_size=max_batch_size).generate(asked, GREEDY)
    for request, group in zip(asked, groups, strict=True):
        expected = reference(model, request.prompt_ids, 24)
        assert [list(sample.ids) for sample in group] == [expected, expected]


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "mistral", "gemma3", "gpt2"])
def test_other_families_decode_as_they_do_in_generate(family: str) -> None:
    model = of_family(family)
    asked = requests()
    groups = engine(model, max_batch_size=3).generate(asked, GREEDY)
    for request, group in zip(asked, groups, strict=True):
        assert list(group[0].ids) == reference(model, request.prompt_ids, 24)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
@pytest.mark.parametrize(
    "truncation", [{}, {"top_k": 10}, {"top_p": 0.8}, {"min_p": 0.1}, {"top_k": 30, "top_p": 0.9}]
)
def test_A5b_logprobs_equal_a_full_forward_pass(
    temperature: float, truncation: dict[str, float]
) -> None:
    model = tiny_model(TOKENIZER)
    asked = requests(num_samples=3)
    sampling = SamplingParams(temperature=temperature, max_tokens=16, **truncation)
    warpers: list[Any] = []
    if sampling.top_k > 0:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p > 0:
        warpers.append(MinPLogitsWarper(sampling.min_p))
    groups = engine(model, max_batch_size=7).generate(asked, sampling)
    for request, group in zip(asked, groups, strict=True):
        for sample in group:
            full = full_logprobs(model, request, sample, temperature)
            expected = full.gather(-1, torch.tensor(sample.ids)[:, None])[:, 0]
            measured = torch.tensor(sample.sampling_logprobs, dtype=torch.float64)
            assert torch.allclose(measured, expected, atol=1e-4)
            scores = full
            for warper in warpers:
                scores = warper(None, scores)
            mass = torch.where(scores.isfinite(), full.exp(), 0.0).sum(-1)
            kept = torch.tensor(sample.kept_mass, dtype=torch.float64)
            assert torch.allclose(kept, mass if warpers else torch.ones(()).double(), atol=1e-4)


def test_greedy_reports_temperature_one() -> None:
    model = tiny_model(TOKENIZER)
    asked = requests()
    for request, group in zip(asked, engine(model).generate(asked, GREEDY), strict=True):
        full = full_logprobs(model, request, group[0], 1.0)
        assert torch.allclose(torch.tensor(group[0].sampling_logprobs).double(), full.amax(-1))
        assert set(group[0].kept_mass) == {1.0}


def test_sampled_frequencies_follow_the_model() -> None:
    """Chi-square over the first token; a true sampler passes in all but one of 100,000 runs."""
    model = tiny_model(TOKENIZER)
    request = Request(prompt_ids=tuple(TOKENIZER.encode("hello")), num_samples=4000, seed=11)
    sampling = SamplingParams(temperature=0.4, max_tokens=1)
    (group,) = engine(model, max_batch_size=4000).generate([request], sampling)
    counts = torch.bincount(torch.tensor([s.ids[0] for s in group]), minlength=len(TOKENIZER))
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([request.prompt_ids])).logits[0, -1]
    expected = (logits.double() / 0.4).softmax(-1) * 4000
    common = expected >= 5
    rare = ~common
    statistic = ((counts - expected)[common] ** 2 / expected[common]).sum()
    statistic += (counts[rare].sum() - expected[rare].sum()) ** 2 / expected[rare].sum()
    freedom = int(common.sum())
    assert statistic < freedom + 4.3 * (2 * freedom) ** 0.5 + 10


def test_D5_samples_differ_and_repeat_whatever_the_batch_is() -> None:
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    asked = requests(num_samples=4)
    sampling = SamplingParams(max_tokens=20)
    first = engine(model, max_batch_size=64).generate(asked, sampling)
    for group in first:
        assert len({tuple(sample.ids) for sample in group}) == 4
    narrow = engine(model, max_batch_size=3).generate(asked, sampling)
    reverse = engine(model, max_batch_size=5).generate(asked[::-1], sampling)[::-1]
    alone = [engine(model).generate([request], sampling)[0] for request in asked]
    for other in (narrow, reverse, alone):
        assert [[s.ids for s in group] for group in other] == [
            [s.ids for s in group] for group in first
        ]
    fewer = engine(model).generate(requests(num_samples=2), sampling)
    assert [s.ids for s in fewer[0]] == [s.ids for s in first[0][:2]]


def test_A16a_generation_config_does_not_leak() -> None:
    model = tiny_model(TOKENIZER)
    plain = engine(model).generate(requests(num_samples=8), SamplingParams(max_tokens=10))
    model.generation_config = GenerationConfig(
        do_sample=True, top_k=1, repetition_penalty=1.8, temperature=0.1, max_new_tokens=2
    )
    leaky = engine(model).generate(requests(num_samples=8), SamplingParams(max_tokens=10))
    assert [[s.ids for s in g] for g in plain] == [[s.ids for s in g] for g in leaky]
    assert len({tuple(sample.ids) for sample in leaky[0]}) == 8


def test_A16d_every_eos_id_ends_a_completion_and_is_kept() -> None:
    model = tiny_model(TOKENIZER)
    request = requests()[0]
    tokens = reference(model, request.prompt_ids, 24)
    for token in dict.fromkeys(tokens):
        stopping = engine(model, eos_token_ids=[EOS, token])
        sample = stopping.generate([request], GREEDY)[0][0]
        assert list(sample.ids) == tokens[: tokens.index(token) + 1]
        assert sample.finish_reason == "eos"


def test_min_tokens_bans_eos_and_reports_the_mass_it_left() -> None:
    model = tiny_model(TOKENIZER)
    request = requests()[1]
    tokens = reference(model, request.prompt_ids, 24)
    banning = engine(model, eos_token_ids=[tokens[0]])
    greedy = banning.generate([request], SamplingParams(temperature=0, max_tokens=6, min_tokens=6))
    assert tokens[0] not in greedy[0][0].ids
    sampling = SamplingParams(max_tokens=6, min_tokens=4)
    for seed in range(5):
        asked = Request(prompt_ids=request.prompt_ids, seed=seed)
        sample = banning.generate([asked], sampling)[0][0]
        assert tokens[0] not in sample.ids[:4]
        full = full_logprobs(model, asked, sample, 1.0)
        left = 1 - full[: min(4, len(sample.ids)), tokens[0]].exp()
        assert torch.allclose(torch.tensor(sample.kept_mass[:4]).double(), left, atol=1e-4)
        assert set(sample.kept_mass[4:]) <= {1.0}


def test_D9_a_stop_string_ends_a_completion_and_stays_in_it() -> None:
    model = tiny_model(TOKENIZER)
    request = requests()[0]
    text = TOKENIZER.decode(reference(model, request.prompt_ids, 24))
    stop = text[3:6]
    sample = engine(model).generate(
        [request], SamplingParams(temperature=0, max_tokens=24, stop=("never", stop))
    )[0][0]
    assert sample.finish_reason == "stop"
    assert sample.text == TOKENIZER.decode(sample.ids)
    assert stop in sample.text
    assert stop not in TOKENIZER.decode(sample.ids[:-1])
    later = engine(model).generate(
        [request],
        SamplingParams(temperature=0, max_tokens=24, min_tokens=24, stop=(stop,)),
    )[0][0]
    assert len(later.ids) == 24


def test_a_completion_at_the_limit_is_truncated_without_eos() -> None:
    sample = engine(tiny_model(TOKENIZER)).generate(requests()[:1], GREEDY)[0][0]
    assert (sample.finish_reason, len(sample.ids)) == ("length", 24)
    assert EOS not in sample.ids


def test_prefix_ids_are_sampled_from_and_not_returned() -> None:
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    whole = tuple(TOKENIZER.encode("hello world"))
    split = Request(prompt_ids=whole[:3], prefix_ids=whole[3:], num_samples=2, seed=5)
    joined = Request(prompt_ids=whole, num_samples=2, seed=5)
    sampling = SamplingParams(max_tokens=10)
    groups = engine(model).generate([split, joined], sampling)
    assert [s.ids for s in groups[0]] == [s.ids for s in groups[1]]


def count_calls(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
    """Lists that fill with the tokens of every prefill and the rows of every decode step."""
    prefilled: list[int] = []
    decoded: list[int] = []
    prefill, decode = CausalModel.prefill, CausalModel.decode

    def counting_prefill(self: CausalModel, prompts: Any, shared: Any = None) -> Any:
        prefilled.append(sum(map(len, prompts)))
        return prefill(self, prompts, shared)

    def counting_decode(self: CausalModel, tokens: Any, cache: Any) -> Any:
        decoded.append(len(tokens))
        return decode(self, tokens, cache)

    monkeypatch.setattr(CausalModel, "prefill", counting_prefill)
    monkeypatch.setattr(CausalModel, "decode", counting_decode)
    return prefilled, decoded


def test_a_prompt_is_processed_once_for_all_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    prefilled, decoded = count_calls(monkeypatch)
    asked = requests(num_samples=7, texts=("hello world", "abc"))
    groups = engine(tiny_model(TOKENIZER), max_batch_size=4).generate(
        asked, SamplingParams(max_tokens=6)
    )
    assert sum(prefilled) == sum(len(request.prompt_ids) for request in asked)
    assert max(decoded) == 4
    tokens = sum(len(sample.ids) for group in groups for sample in group)
    assert sum(decoded) == tokens - 14, "every decoded row gives a token, and no finished row stays"


def test_rows_leave_as_they_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    _, decoded = count_calls(monkeypatch)
    model = tiny_model(TOKENIZER)
    often = list(range(4, 60))
    (group,) = engine(model, eos_token_ids=often).generate(
        requests(num_samples=30)[:1], SamplingParams(max_tokens=40)
    )
    lengths = [len(sample.ids) for sample in group]
    expected = [sum(n > step for n in lengths) for step in range(1, max(lengths))]
    assert decoded == expected
    assert decoded[-1] < decoded[0]


def test_a_shared_prefix_is_processed_once_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    system = "You are a careful assistant. Think. "
    asked = requests(texts=tuple(system + text for text in TEXTS), num_samples=2)
    sampling = SamplingParams(max_tokens=8)
    prefilled, _ = count_calls(monkeypatch)
    shared = engine(model).generate(asked, sampling)
    tokens = sum(len(request.prompt_ids) for request in asked)
    assert sum(prefilled) == tokens - 4 * len(TOKENIZER.encode(system))
    prefilled.clear()
    monkeypatch.setattr(generation, "MIN_TOKENS_SAVED", 10**9)
    apart = engine(model).generate(asked, sampling)
    assert sum(prefilled) == tokens
    assert [[s.ids for s in g] for g in shared] == [[s.ids for s in g] for g in apart]


def test_long_queues_are_prefilled_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    asked = requests(num_samples=2)
    whole = engine(model).generate(asked, SamplingParams(max_tokens=5))
    prefilled, _ = count_calls(monkeypatch)
    monkeypatch.setattr(generation, "CPU_PREFILL_TOKENS", 12)
    pieces = engine(model).generate(asked, SamplingParams(max_tokens=5))
    assert len(prefilled) > 1
    assert [[s.ids for s in g] for g in whole] == [[s.ids for s in g] for g in pieces]


def test_the_model_is_left_as_it_was() -> None:
    model = tiny_model(TOKENIZER)
    model.train()
    model.model.layers[0].eval()
    before = [module.training for module in model.modules()]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = engine(model).generate(requests(), GREEDY)
        assert torch.is_autocast_enabled("cpu")
    assert [module.training for module in model.modules()] == before
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert model.config._attn_implementation == "sdpa"
    assert not model.lm_head._forward_pre_hooks
    loss = model(input_ids=torch.tensor([[5, 6, 7]])).logits.sum()
    loss.backward()
    model.eval()
    plain = engine(model).generate(requests(), GREEDY)
    assert [g[0].ids for g in mixed] == [g[0].ids for g in plain], "the caller's autocast leaked"


def test_gradient_checkpointing_does_not_disturb_sampling() -> None:
    model = tiny_model(TOKENIZER)
    plain = engine(model).generate(requests(), GREEDY)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    again = engine(model).generate(requests(), GREEDY)
    assert [g[0].ids for g in plain] == [g[0].ids for g in again]


def test_logprobs_can_be_left_out() -> None:
    sampling = SamplingParams(max_tokens=4, logprobs=False)
    sample = engine(tiny_model(TOKENIZER)).generate(requests()[:1], sampling)[0][0]
    assert all(value != value for value in sample.sampling_logprobs)


def test_A16b_the_settings_in_effect_are_printable() -> None:
    text = engine(tiny_model(TOKENIZER)).describe(
        SamplingParams(temperature=0.6, top_k=20, max_tokens=7, stop=("</answer>",))
    )
    assert text == (
        "temperature 0.6; top_p off; top_k 20; min_p off; max_tokens 7; min_tokens 0; "
        "stop '</answer>' (kept in the text); EOS ids 3. From the run's configuration; the "
        "model's generation_config is not read."
    )
    assert "greedy" in engine(tiny_model(TOKENIZER)).describe(GREEDY)


def test_submit_and_collect_are_generate_in_two_calls() -> None:
    sampler = engine(tiny_model(TOKENIZER))
    pending = sampler.submit(requests(), GREEDY)
    assert pending.ready()
    assert sampler.collect(pending) == sampler.generate(requests(), GREEDY)
    assert sampler.generate([], GREEDY) == []
    with pytest.raises(EngineError, match="was not submitted"):
        sampler.collect(object())  # type: ignore[arg-type]


def test_bad_requests_raise() -> None:
    sampler = engine(tiny_model(TOKENIZER))

    def generate(request: Request, sampling: SamplingParams = GREEDY) -> None:
        sampler.generate([request], sampling)

    with pytest.raises(EngineError, match="empty prompt"):
        generate(Request(prompt_ids=()))
    with pytest.raises(EngineError, match="num_samples=0"):
        generate(Request(prompt_ids=(5,), num_samples=0))
    with pytest.raises(EngineError, match=r"token id 9999.*vocabulary of"):
        generate(Request(prompt_ids=(5, 9999)))
    with pytest.raises(EngineError, match="token id -1"):
        generate(Request(prompt_ids=(5, -1)))
    with pytest.raises(EngineError, match="prompt of 250 tokens and max_tokens=24 need 274") as e:
        generate(Request(prompt_ids=(5,) * 250))
    assert "256" in e.value.message
    assert "max_prompt_length" in str(e.value.hint)
    generate(Request(prompt_ids=(5,) * 252), SamplingParams(max_tokens=4))


def test_bad_settings_raise() -> None:
    model = tiny_model(TOKENIZER)
    with pytest.raises(EngineError, match="max_batch_size=0"):
        engine(model, max_batch_size=0)
    with pytest.raises(EngineError, match=r"eos_token_ids=\[5000\]"):
        engine(model, eos_token_ids=[5000])
    with pytest.raises(EngineError, match=r"sampling_dtype=torch\.bfloat16 cannot be used"):
        engine(model, share_weights=True, sampling_dtype=torch.bfloat16)


def test_models_that_cannot_be_decoded_are_refused() -> None:
    config = transformers.MambaConfig(
        vocab_size=20, hidden_size=8, state_size=4, num_hidden_layers=1, pad_token_id=0
    )
    with pytest.raises(EngineError, match="MambaForCausalLM cannot be sampled"):
        engine(transformers.MambaForCausalLM(config))


def test_broken_weights_raise_instead_of_sampling_noise() -> None:
    model = tiny_model(TOKENIZER)
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(EngineError, match="not finite"):
        engine(model).generate(requests(), GREEDY)
    assert model.config._attn_implementation == "sdpa"


def test_sleep_wake_and_close() -> None:
    sampler = engine(tiny_model(TOKENIZER), share_weights=False)
    sampler.sleep()
    with pytest.raises(EngineError, match="asleep"):
        sampler.generate(requests(), GREEDY)
    sampler.wake()
    assert sampler.generate(requests(), GREEDY)
    sampler.close()
    with pytest.raises(EngineError, match="closed"):
        sampler.generate(requests(), GREEDY)


@pytest.mark.gpu
def test_the_gpu_samples_what_the_cpu_samples() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    asked = requests(num_samples=3)
    for sampling in (GREEDY, SamplingParams(max_tokens=16), SamplingParams(top_p=0.9)):
        short = SamplingParams(
            temperature=sampling.temperature, top_p=sampling.top_p, max_tokens=16
        )
        on_cpu = engine(model.to("cpu")).generate(asked, short)
        on_gpu = engine(model.to("cuda"), max_batch_size=4).generate(asked, short)
        assert [[s.ids for s in g] for g in on_cpu] == [[s.ids for s in g] for g in on_gpu]
