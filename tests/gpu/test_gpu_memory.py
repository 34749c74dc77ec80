"""Memory on CUDA: what stays on the card, what is computed the same, what an error says."""

from __future__ import annotations

import copy
import importlib.util
import json

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tiny import tiny_tokenizer
from workings.cli.out_of_memory import explained
from workings.cli.profile.trial import TrialProcess
from workings.config.sft import SFTConfig
from workings.errors import is_out_of_memory
from workings.models.load import load_model
from workings.models.lora import add_lora
from workings.models.tensors import load_tensors, save_tensors
from workings.models.weights import merged_state, named_full_weights
from workings.training.checkpointer import _plain
from workings.training.distributed import Ranks
from workings.training.offloaded_adamw import OffloadedAdamW
from workings.training.optim import build_optimizer, set_learning_rate
from workings.training.packing import TrainRow, pack, step_totals
from workings.training.step import policy_step
from workings.training.supervised_loss import supervised_loss

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("default"),
]
BITSANDBYTES = importlib.util.find_spec("bitsandbytes") is not None
needs_bitsandbytes = pytest.mark.skipif(not BITSANDBYTES, reason="bitsandbytes is not installed")
TOKENIZER = tiny_tokenizer()
SETTINGS = {"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
HALF = torch.bfloat16


def llama(dtype=torch.float32, *, width=128, layers=2, vocabulary=None):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary or len(TOKENIZER),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=TOKENIZER.eos_token_id,
        pad_token_id=TOKENIZER.pad_token_id,
    )
    return LlamaForCausalLM(config).to("cuda", dtype)


def rows(count=6, length=40):
    generator = torch.Generator().manual_seed(1)
    draw = torch.randint(5, len(TOKENIZER), (count, length), generator=generator).tolist()
    return [
        TrainRow(
            key=key, group=key, prompt_ids=ids[:8], response_ids=ids[8:], mask=[True] * (length - 8)
        )
        for key, ids in enumerate(draw)
    ]


def step(model, optimizer, *, max_tokens=80, autocast=None, max_grad_norm=1.0):
    batch = rows()
    return policy_step(
        model,
        optimizer,
        pack(batch, layout="padded", max_tokens=max_tokens, device="cuda"),
        supervised_loss(step_totals(batch, Ranks())),
        max_grad_norm=max_grad_norm,
        autocast=autocast,
    )


def train(model, optimizer, count, **settings):
    for number in range(count):
        set_learning_rate(optimizer, 1e-2 / (1 + number))
        outcome = step(model, optimizer, **settings)
    return outcome


def give_gradients(model, number):
    generator = torch.Generator("cuda").manual_seed(number)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator, device="cuda")


@pytest.mark.parametrize("bucket_bytes", [1, 100_000, 128 << 20])
def test_offloaded_float32_weights_are_torchs_bit_for_bit(bucket_bytes):
    model = llama()
    twin = copy.deepcopy(model)
    theirs = torch.optim.AdamW(model.parameters(), **SETTINGS, fused=True)
    ours = OffloadedAdamW(twin.parameters(), **SETTINGS, bucket_bytes=bucket_bytes)
    for number in range(4):
        for one, optimizer in ((model, theirs), (twin, ours)):
            set_learning_rate(optimizer, 1e-2 / (1 + number))
            give_gradients(one, number)
            optimizer.step()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert one.equal(other)
        for name in ("exp_avg", "exp_avg_sq"):
            assert ours.state[other][name].is_pinned()
            assert ours.state[other][name].equal(theirs.state[one][name].cpu())


@pytest.mark.parametrize("bucket_bytes", [1, 128 << 20])
def test_bfloat16_weights_are_the_rounded_masters(bucket_bytes):
    model = llama(HALF)
    masters = copy.deepcopy(model).float()
    ours = OffloadedAdamW(model.parameters(), **SETTINGS, bucket_bytes=bucket_bytes)
    theirs = torch.optim.AdamW(masters.parameters(), **SETTINGS, fused=True)
    for number in range(4):
        for one, optimizer in ((model, ours), (masters, theirs)):
            set_learning_rate(optimizer, 1e-3)
            give_gradients(one, number)
            optimizer.step()
    for rounded, master in zip(model.parameters(), masters.parameters(), strict=True):
        assert rounded.equal(master.to(HALF))
        assert ours.state[rounded]["master"].is_pinned()
        assert ours.state[rounded]["master"].equal(master.cpu())


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("max_grad_norm", [0.0, 0.05])
def test_gradients_in_cpu_memory_change_nothing(dtype, max_grad_norm):
    autocast = None if dtype == torch.float32 else HALF
    model = llama(dtype)
    twin = copy.deepcopy(model)
    resident = OffloadedAdamW(model.parameters(), **SETTINGS)
    offloaded = OffloadedAdamW(
        twin.parameters(), **SETTINGS, offload_gradients=True, bucket_bytes=100_000
    )
    settings = {"autocast": autocast, "max_grad_norm": max_grad_norm}
    one = train(model, resident, 3, **settings)
    other = train(twin, offloaded, 3, **settings)
    assert all(parameter.grad is None for parameter in twin.parameters())
    assert other.grad_norm == pytest.approx(one.grad_norm, rel=1e-4)
    for mine, yours in zip(model.parameters(), twin.parameters(), strict=True):
        a = resident.state[mine].get("master", mine)
        b = offloaded.state[yours].get("master", yours)
        # Atomic sums differ in their last bits, and a tiny gradient makes as long a step as any.
        assert torch.isclose(a, b, rtol=1e-3, atol=1e-5).double().mean() > 0.999


def held(before=0):
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated() - before


def test_what_stays_on_the_card_by_optimizer():
    torch.cuda.empty_cache()
    start = held()
    model = llama(HALF, width=1024, layers=4, vocabulary=8192)
    count = sum(p.numel() for p in model.parameters())
    optimizer = OffloadedAdamW(model.parameters(), offload_gradients=True)
    assert held(start) == pytest.approx(2 * count, rel=0.02)
    train(model, optimizer, 2, autocast=HALF)
    assert held(start) < 2.1 * count + (96 << 20)  # cuBLAS keeps a workspace
    optimizer.zero_grad()
    del optimizer
    resident = OffloadedAdamW(model.parameters())
    train(model, resident, 2, autocast=HALF)
    gradients = sum(p.grad.nbytes for p in model.parameters())
    assert gradients == 4 * count
    assert held(start) < 6.1 * count + (96 << 20)


def test_a_state_is_loaded_past_the_card(tmp_path):
    model = llama(HALF, width=512)
    optimizer = OffloadedAdamW(model.parameters(), **SETTINGS)
    train(model, optimizer, 2, autocast=HALF)
    save_tensors(tmp_path / "optimizer.pt", _plain(optimizer.state_dict()))
    resumed = copy.deepcopy(model)
    again = OffloadedAdamW(resumed.parameters(), **SETTINGS)
    torch.cuda.reset_peak_memory_stats()
    before = held()
    again.load_state_dict(load_tensors(tmp_path / "optimizer.pt", mmap=True))
    assert torch.cuda.max_memory_allocated() - before < 1 << 20
    for number in range(2):
        for one, its in ((model, optimizer), (resumed, again)):
            give_gradients(one, number)
            its.step()
    for one, other in zip(model.parameters(), resumed.parameters(), strict=True):
        assert one.equal(other)


@needs_bitsandbytes
def test_8_bit_moments_follow_adamw_and_resume(tmp_path):
    model = llama()
    start = copy.deepcopy(model)
    twin = copy.deepcopy(model)
    ours, theirs = build_optimizer(model, name="adamw_8bit"), build_optimizer(twin)
    train(model, ours, 5)
    train(twin, theirs, 5)
    gap = moved = 0.0
    for one, other, before in zip(
        model.parameters(), twin.parameters(), start.parameters(), strict=True
    ):
        gap += (one - other).double().square().sum().item()
        moved += (other - before).double().square().sum().item()
    assert (gap / moved) ** 0.5 < 0.2
    save_tensors(tmp_path / "optimizer.pt", _plain(ours.state_dict()))
    resumed = copy.deepcopy(model)
    again = build_optimizer(resumed, name="adamw_8bit")
    again.load_state_dict(load_tensors(tmp_path / "optimizer.pt", mmap=True))
    for number in range(2):
        for one, optimizer in ((model, ours), (resumed, again)):
            set_learning_rate(optimizer, 1e-3)
            give_gradients(one, number)
            optimizer.step()
    for one, other in zip(model.parameters(), resumed.parameters(), strict=True):
        assert one.equal(other)


@needs_bitsandbytes
@pytest.mark.parametrize("kind", ["4bit", "8bit"])
def test_a_quantised_base_trains_and_is_merged(kind, tmp_path):
    llama(HALF).cpu().save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    loaded = load_model(
        str(tmp_path), quantization=kind, dtype="bfloat16", weights="arithmetic", device="cuda"
    )
    policy = add_lora(
        loaded.model, rank=4, alpha=8, dropout=0.0, targets=["q_proj", "down_proj"], seed=0
    )
    optimizer = build_optimizer(policy)
    losses = [train(policy, optimizer, 1, autocast=HALF).loss for _ in range(5)]
    assert losses[-1] < losses[0]
    ids = torch.randint(5, len(TOKENIZER), (2, 32), device="cuda")
    whole = llama(HALF)
    whole.load_state_dict({n: t.to(HALF) for n, t in merged_state(policy).items()}, strict=False)
    policy.eval()
    with torch.no_grad():
        ours = policy(input_ids=ids).logits.float()
        theirs = whole.eval()(input_ids=ids).logits.float()
    scale = theirs.std()
    # 4 bits: rounding to bfloat16. 8 bits: the inputs are rounded to 8 bits as well.
    assert (ours - theirs).abs().mean() / scale < (0.03 if kind == "4bit" else 0.06)
    codes = [p.data.clone() for n, p in policy.named_parameters() if "base_layer.weight" in n]
    for _ in range(10):
        list(named_full_weights(policy))
    after = [p.data for n, p in policy.named_parameters() if "base_layer.weight" in n]
    assert all(one.equal(other) for one, other in zip(codes, after, strict=True))


def test_a_real_shortage_is_known_and_explained():
    _, total = torch.cuda.mem_get_info()
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    assert is_out_of_memory(caught.value)
    run = SFTConfig.model_validate(
        {"name": "r", "model": {"name_or_path": "t"}, "data": {"train": {"path": "p"}}}
    )
    found = explained(caught.value, run)
    assert "Tried to allocate" in found.message
    assert "batch.microbatch_tokens=4096 (now auto)" in found.hint
    assert "expandable_segments:True" in found.hint


def test_trials_under_a_limit(tmp_path):
    llama(HALF).cpu().save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    run = SFTConfig.model_validate(
        {
            "name": "r",
            "model": {"name_or_path": str(tmp_path), "device": "cuda"},
            "data": {"train": {"path": "p"}},
        }
    )
    with TrialProcess(run, limit_bytes=1 << 30, num_steps=2) as process:
        small = process.trial(4, 128)
        assert small.fits
        assert 0 < small.peak_bytes < 1 << 30
        assert not process.trial(4096, 500).fits
        again = process.trial(4, 128)
        assert again.fits
        assert again.peak_bytes == pytest.approx(small.peak_bytes, rel=0.2)
        assert json.dumps(dict(process.report))
