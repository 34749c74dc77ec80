"""The paged engine on CUDA: kernels and graphs against the transformers engine on the same card."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from tiny import tiny_tokenizer
from workings.errors import EngineError
from workings.models.weights import named_full_weights
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.paged.cache import PAGE_SIZE
from workings.rollout.paged.device_memory import DeviceMemory
from workings.rollout.paged.engine import PagedEngine
from workings.rollout.transformers_engine import TransformersEngine
from workings.types import Sample

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

TOKENIZER = tiny_tokenizer()
EOS = TOKENIZER.eos_token_id
COMMON: dict[str, Any] = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 192,
    "intermediate_size": 384,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "initializer_range": 0.1,
}
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**COMMON, tie_word_embeddings=True),
    "qwen2": lambda: transformers.Qwen2Config(**COMMON, tie_word_embeddings=False),
    "qwen3": lambda: transformers.Qwen3Config(**COMMON, tie_word_embeddings=True),
}
SETTINGS = {
    "plain": SamplingParams(max_tokens=40),
    "greedy": SamplingParams(temperature=0, max_tokens=40),
    "cut": SamplingParams(temperature=0.7, top_k=20, top_p=0.8, min_p=0.02, max_tokens=40),
    "stop strings": SamplingParams(max_tokens=30, min_tokens=10, stop=("e", "ll")),
}


def model_of(name: str, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name]())
    return model.to(device="cuda", dtype=dtype).eval()


def requests() -> list[Request]:
    generator = torch.Generator().manual_seed(1)
    return [
        Request(
            prompt_ids=tuple(
                torch.randint(4, len(TOKENIZER), (length,), generator=generator).tolist()
            ),
            num_samples=num_samples,
            seed=seed,
        )
        for seed, (length, num_samples) in enumerate(
            [(1, 3), (5, 4), (17, 5), (33, 4), (40, 1), (16, 2)]
        )
    ]


def paged(model: Any, **settings: Any) -> PagedEngine:
    return PagedEngine(
        model, TOKENIZER, **{"eos_token_ids": [EOS], "dtype": torch.float32, **settings}
    )


def assert_same(ours: list[list[Sample]], theirs: list[list[Sample]]) -> None:
    for group, wanted in zip(ours, theirs, strict=True):
        for mine, other in zip(group, wanted, strict=True):
            assert list(mine.ids) == list(other.ids)
            assert mine.finish_reason == other.finish_reason
            assert mine.sampling_logprobs == pytest.approx(list(other.sampling_logprobs), abs=1e-4)
            assert mine.kept_mass == pytest.approx(list(other.kept_mass), abs=1e-4)


@pytest.mark.parametrize("use_graphs", [True, False], ids=["graphs", "eager"])
@pytest.mark.parametrize("name", CONFIGS)
def test_float32_samples_are_those_of_the_transformers_engine(name: str, use_graphs: bool) -> None:
    model = model_of(name)
    theirs = TransformersEngine(model, TOKENIZER, eos_token_ids=[EOS])
    ours = paged(model, max_batch_size=7, cache_tokens=20 * PAGE_SIZE, use_graphs=use_graphs)
    for sampling in SETTINGS.values():
        assert_same(ours.generate(requests(), sampling), theirs.generate(requests(), sampling))
    ours.close()


def test_bfloat16_logprobs_are_near_a_float32_forward_pass() -> None:
    model = model_of("qwen2")
    engine = paged(model, dtype=torch.bfloat16)
    gaps = []
    for request, group in zip(
        requests(), engine.generate(requests(), SETTINGS["plain"]), strict=True
    ):
        for sample in group:
            ids = torch.tensor([[*request.prompt_ids, *sample.ids]], device="cuda")
            with torch.no_grad():
                logprobs = model(ids).logits[0].log_softmax(-1)[len(request.prompt_ids) - 1 : -1]
            chosen = logprobs.gather(-1, ids[0, len(request.prompt_ids) :, None])[:, 0]
            gaps += (chosen.cpu() - torch.tensor(sample.sampling_logprobs)).tolist()
    assert torch.tensor(gaps).abs().mean() < 0.05
    engine.close()


def test_more_rows_than_slots_and_every_size_of_batch() -> None:
    model = model_of("llama")
    many = [Request(prompt_ids=(5, 6, 7), num_samples=300, seed=3, max_tokens=9)]
    sampling = SamplingParams(max_tokens=9)
    wanted = paged(model, max_batch_size=300).generate(many, sampling)
    for max_batch_size in (1, 65, 257):
        engine = paged(model, max_batch_size=max_batch_size)
        assert_same(engine.generate(many, sampling), wanted)
        engine.close()


def test_sleep_returns_the_memory_and_the_graphs_survive() -> None:
    model = model_of("llama")
    engine = paged(model, max_batch_size=64)
    many = [Request(prompt_ids=(5, 6, 7), num_samples=64, seed=3)]
    sampling = SamplingParams(max_tokens=400)
    wanted = engine.generate(many, sampling)
    torch.cuda.empty_cache()
    awake = torch.cuda.mem_get_info()[0]
    engine.sleep()
    asleep = torch.cuda.mem_get_info()[0]
    assert asleep - awake >= 0.95 * engine.cache_bytes
    engine.load_weights(3, named_full_weights(model))
    engine.wake()
    assert_same(engine.generate(many, sampling), wanted)
    engine.close()
    assert torch.cuda.mem_get_info()[0] >= asleep - (64 << 20)  # what torch keeps of the last call


def test_memory_is_mapped_at_one_address_and_its_tensor_is_writable() -> None:
    memory = DeviceMemory(3 << 20, torch.device("cuda"))
    tensor = memory.tensor((1024, 64), torch.bfloat16)
    address = tensor.data_ptr()
    tensor.fill_(2.0)
    assert float(tensor.float().sum()) == 2.0 * 1024 * 64
    memory.unmap()
    memory.unmap()
    memory.map()
    tensor.fill_(3.0)
    assert tensor.data_ptr() == address
    assert float(tensor.float().sum()) == 3.0 * 1024 * 64
    del tensor
    memory.free()


def test_too_little_memory_is_an_error_that_says_what_to_lower() -> None:
    with pytest.raises(EngineError, match="GiB for its key-value cache") as caught:
        DeviceMemory(1 << 42, torch.device("cuda"))
    assert "engine.gpu_memory_utilization" in str(caught.value.hint)
