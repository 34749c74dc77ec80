"""`batch.microbatch_tokens=auto`: its arithmetic against measured peaks, its choices, resuming.

The sizes are those of SmolLM2-135M and of Qwen2.5-1.5B.
"""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_loop import Loop
from tiny import tiny_model, tiny_tokenizer
from workings.config.grpo import GRPOConfig
from workings.config.sft import SFTConfig
from workings.models.lora import add_lora
from workings.objectives.logits_memory import logits_bytes
from workings.tracking.recorder import Recorder
from workings.training.checkpointer import Checkpointer, RunPaths
from workings.training.memory_estimate import (
    Activations,
    Widths,
    cache_bytes,
    engine_bytes,
    optimizer_bytes,
    widths_of,
)
from workings.training.microbatch_tokens import (
    CPU_TOKENS,
    MOST_TOKENS,
    _adapter_numbers,
    choose_tokens,
    engine_of,
    gpu_choice,
    lasting_of,
    settled,
)

GIB = 2**30
MODES = ("none", "selective", "full", "offloaded")
SMALL = Widths(
    layers=30, hidden=576, normed=1152, gated=1536, queries=576, keys=192, vocabulary=49152
)
MIDDLE = Widths(
    layers=28, hidden=1536, normed=3072, gated=8960, queries=1536, keys=256, vocabulary=151936
)
SIZES = {135: (SMALL, 134.5e6), 1500: (MIDDLE, 1.5437e9)}
"""Widths and parameters."""


def activations(
    widths=MIDDLE, checkpointing="none", *, fused=True, gib=80, number_bytes=2, head_trained=True
):
    return Activations(
        widths=widths,
        checkpointing=checkpointing,
        fused=fused,
        number_bytes=number_bytes,
        gpu_bytes=gib * GIB,
        head_trained=head_trained,
    )


def lasting(millions, engine=0):
    """float32 weights and gradients, AdamW, copies of the layers in half precision."""
    widths, parameters = SIZES[millions]
    return int(16 * parameters + 2 * (parameters - widths.vocabulary * widths.hidden)) + engine


@pytest.mark.parametrize(
    ("checkpointing", "fused", "num_tokens", "measured"),
    [
        ("none", True, 16384, 57.2),
        ("none", False, 8192, 44.9),
        ("selective", True, 16384, 48.2),
        ("full", True, 16384, 27.3),
        ("offloaded", True, 16384, 27.3),
    ],
)
def test_the_estimate_is_above_what_was_measured_and_not_far(
    checkpointing, fused, num_tokens, measured
):
    # Peaks of 1.5 thousand million parameters on an H100 with 80 GB, in GiB. Those of one pass hold
    # no gradients at the head yet, which is what brings the fourth over a fifth.
    found = activations(MIDDLE, checkpointing, fused=fused).num_bytes(num_tokens)
    estimate = (lasting(1500) + found) / GIB
    assert 1.05 * measured < estimate < 1.22 * measured


def test_numbers_of_a_layer_by_hand():
    # q, k, v and the result of attention; two norms' inputs and outputs; gate, up, their product.
    fused = activations(MIDDLE).layer_numbers
    assert fused == (1536 + 2 * 256 + 1536) + 4 * 1536 + 3 * 8960
    plain = activations(MIDDLE, fused=False).layer_numbers
    assert plain == fused + 4 * 1536 + 8960
    assert activations(MIDDLE, "full").kept_numbers == 28 * 1536
    assert activations(MIDDLE, "offloaded").kept_numbers == 2 * 1536


def test_nothing_to_train_takes_nothing():
    assert activations().num_bytes(0) == 0


def test_logits_are_whole_up_to_a_share_of_the_card():
    whole = 16384 * 151936 * 2
    assert logits_bytes(16384, 151936, number_bytes=2, gpu_bytes=80 * GIB) == whole
    bounded = logits_bytes(65536, 151936, number_bytes=2, gpu_bytes=80 * GIB)
    assert bounded == 5 * GIB + 2 * GIB
    assert logits_bytes(65536, 151936, number_bytes=4, gpu_bytes=None) == 4 << 27


@pytest.mark.parametrize("checkpointing", MODES)
@pytest.mark.parametrize("millions", SIZES)
def test_what_is_chosen_fits_and_one_step_more_does_not(checkpointing, millions):
    widths, _ = SIZES[millions]
    for gib in (24, 48, 80, 140):
        held = lasting(millions)
        parts = activations(widths, checkpointing, gib=gib)
        found = choose_tokens(parts, total=gib * GIB, lasting=held, longest_row=512)
        free = int(0.92 * gib * GIB) - held
        if found.tight:
            assert parts.num_bytes(512) > free
            assert found.tokens == 512
            continue
        assert parts.num_bytes(found.tokens) <= free
        assert found.tokens == MOST_TOKENS or parts.num_bytes(found.tokens + 256) > free


@given(
    gib=st.integers(8, 200),
    more=st.integers(0, 100),
    checkpointing=st.sampled_from(MODES),
    longest_row=st.integers(1, 100_000),
)
def test_more_memory_never_gives_fewer_tokens(gib, more, checkpointing, longest_row):
    def tokens(size):
        parts = activations(MIDDLE, checkpointing, gib=size)
        return choose_tokens(
            parts, total=size * GIB, lasting=lasting(1500), longest_row=longest_row
        ).tokens

    assert longest_row <= tokens(gib) <= tokens(gib + more) <= max(MOST_TOKENS, longest_row)


def test_less_is_kept_from_mode_to_mode():
    found = [
        choose_tokens(
            activations(MIDDLE, mode), total=40 * GIB, lasting=lasting(1500), longest_row=1
        ).tokens
        for mode in MODES
    ]
    assert found == sorted(found)
    assert len(set(found)) == 4


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("awake", [False, True])
def test_a_small_model_gets_large_passes_beside_an_engine(fused, awake):
    run = grpo(engine={"sleep": not awake}, prompts_per_step=64)
    engine = engine_of(
        run,
        SMALL,
        num_parameters=int(134.5e6),
        number_bytes=2,
        total=80 * GIB,
        longest_row=248,
    )
    found = choose_tokens(
        activations(SMALL, fused=fused),
        total=80 * GIB,
        lasting=lasting(135, engine),
        longest_row=248,
    )
    assert found.tokens >= 40960


def test_the_longest_row_is_the_least_and_is_said():
    parts = activations(MIDDLE, gib=24)
    found = choose_tokens(parts, total=24 * GIB, lasting=23 * GIB, longest_row=3000)
    assert (found.tokens, found.tight) == (3000, True)
    assert "the longest row, although about 0 tokens fit by the estimate" in str(found)
    long = choose_tokens(activations(SMALL), total=999 * GIB, lasting=0, longest_row=90_000)
    assert (long.tokens, long.tight) == (90_000, False)


def test_a_mask_bounds_the_choice():
    found = choose_tokens(
        activations(SMALL), total=80 * GIB, lasting=0, longest_row=100, masked=True
    )
    assert found.tokens == 8192
    assert "a mask grows with its square" in found.reason


# ------------------------------------------------------------------------------------ what lasts


def test_states_by_optimizer():
    def held(name="adamw", **settings):
        usual = {"offload": False, "offload_gradients": False, "narrow": True, "on_gpu": True}
        return optimizer_bytes(name, 10**9, **{**usual, **settings})

    n, stages = 10**9, 3 * (128 << 20)
    assert held() == (4 * n, 8 * n)
    assert held("adamw_8bit") == (4 * n, 2_031_250_000)
    assert held("rmsprop") == (4 * n, 4 * n)
    assert held(offload=True) == (4 * n, stages)
    assert held(offload=True, offload_gradients=True) == (0, stages)
    assert held(offload=True, on_gpu=False) == (4 * n, 12 * n)


@pytest.mark.parametrize(
    ("name", "awake", "own_process", "held"),
    [
        ("server", 900, False, 0),
        ("transformers", 900, False, 0),
        ("transformers", 0, True, (1 << 29) + 2000 + 12 * 50 * 7),
        ("paged", 0, False, 2000 + 12 * 50 * 7),
        ("auto", 900, False, 2000 + 12 * 50 * 7 + 900),
        ("paged", 9000, False, 2000 + 12 * 50 * 7 + 5000),
        ("vllm", 900, False, 5000),
        ("vllm", 0, False, 5000),
    ],
)
def test_what_an_engine_holds_beside_the_trainer(name, awake, own_process, held):
    found = engine_bytes(
        name,
        num_parameters=1000,
        number_bytes=2,
        vocabulary=50,
        num_rows=7,
        awake_bytes=awake,
        share_bytes=5000,
        own_process=own_process,
    )
    assert found == held


def grpo(**settings):
    return GRPOConfig.model_validate(
        {
            "name": "r",
            "model": {"name_or_path": "t"},
            "data": {"train": {"path": "p"}},
            **settings,
        }
    )


def test_an_engine_elsewhere_takes_nothing_and_one_that_never_rests_its_cache():
    def held(**settings):
        return engine_of(
            grpo(**settings),
            MIDDLE,
            num_parameters=10**9,
            number_bytes=2,
            total=80 * GIB,
            longest_row=1000,
        )

    asleep = held()
    cache = cache_bytes(MIDDLE, 256 * 1000, number_bytes=2)
    assert held(engine={"sleep": False}) == asleep + cache
    assert held(engine={"own_process": True, "device": "cuda:1"}) == 0
    server = {"name": "server", "server_url": "http://h:1"}
    assert held(engine=server) == 0
    # Samples while the trainer works.
    ahead = {"own_process": True}
    assert held(schedule="one_step_off", engine=ahead) == asleep + cache + (1 << 29)


def test_widths_are_those_of_the_model():
    found = widths_of(tiny_model(tiny_tokenizer()).config)
    assert (found.layers, found.hidden, found.keys) == (2, 32, 16)
    assert found.normed == 2 * 32


def test_adapters_keep_their_inner_width_and_what_dropout_made():
    def numbers(dropout):
        model = tiny_model(tiny_tokenizer())
        targets = ("q_proj", "down_proj")
        return _adapter_numbers(
            add_lora(model, rank=4, alpha=8, dropout=dropout, targets=targets, seed=0)
        )

    inputs = 32 + tiny_model(tiny_tokenizer()).config.intermediate_size
    assert numbers(0.0) == 2 * 4
    assert numbers(0.1) == 2 * 4 + 1.5 * inputs


def held_by(model, run=None):
    parts = activations(widths_of(model.config), gib=1)
    return lasting_of(run or grpo(), model, parts, total=GIB, longest_row=30)


def test_what_lasts_is_counted_on_the_model_itself():
    model = tiny_model(tiny_tokenizer())
    n = model.num_parameters()
    ends = model.get_input_embeddings().weight.numel()
    if model.get_output_embeddings().weight is not model.get_input_embeddings().weight:
        ends *= 2
    found = held_by(model)
    assert found.weights == 4 * n + sum(buffer.nbytes for buffer in model.buffers())
    assert (found.gradients, found.optimizer, found.copies) == (4 * n, 8 * n, 2 * (n - ends))
    assert found.engine == 2 * n + 12 * model.config.vocab_size * 256
    assert found.reference == 0
    assert held_by(model, grpo(objective={"beta": 0.1})).reference == 4 * n
    assert held_by(model, sft()).engine > found.engine  # no batch bounds what it decodes at once
    half = held_by(model.to(torch.bfloat16), grpo(optimizer={"offload": True}))
    assert half.copies == 0
    assert half.optimizer == min(8 * n, 3 << 27)


def test_adapters_over_a_frozen_base_are_what_is_trained():
    model = add_lora(
        tiny_model(tiny_tokenizer()).to(torch.bfloat16),
        rank=4,
        alpha=8,
        dropout=0.0,
        targets=("q_proj",),
        seed=0,
    )
    trained = [p for p in model.parameters() if p.requires_grad]
    count, size = sum(p.numel() for p in trained), sum(p.nbytes for p in trained)
    found = held_by(model, grpo(objective={"beta": 0.1}))
    assert (found.gradients, found.optimizer) == (4 * count, 8 * count)
    assert found.copies == (2 * count if trained[0].element_size() == 4 else 0)
    assert found.reference == 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B." in name:
                parameter.fill_(1.0)
    assert held_by(model, grpo(objective={"beta": 0.1})).reference == size


def test_a_model_gets_its_choice_for_a_card():
    model = tiny_model(tiny_tokenizer())
    settings = {"longest_row": 100, "autocast": torch.bfloat16}
    padded = grpo(batch={"layout": "padded"})
    small = gpu_choice(padded, model, total=GIB // 8, **settings)
    large = gpu_choice(padded, model, total=16 * GIB, **settings)
    assert 100 < small.tokens < large.tokens == MOST_TOKENS
    assert gpu_choice(grpo(), model, total=16 * GIB, **settings).tokens == 8192  # a mask, here


# ---------------------------------------------------------------------------------- in a run


def sft(tokens="auto"):
    return SFTConfig.model_validate(
        {
            "name": "r",
            "model": {"name_or_path": "t"},
            "data": {"train": {"path": "p"}},
            "batch": {"microbatch_tokens": tokens},
        }
    )


class Said(Recorder):
    """Keeps what it is told."""

    def __init__(self):
        super().__init__(None, [])
        self.lines = []

    def log(self, text):
        self.lines.append(text)


def settle(tmp_path, run, **settings):
    recorder = Said()
    checkpointer = Checkpointer(
        RunPaths(folder=tmp_path), None, recorder, kind="sft", config_text=""
    )
    found = settled(
        run,
        tiny_model(tiny_tokenizer()),
        longest_row=20_000,
        checkpointer=checkpointer,
        recorder=recorder,
        **settings,
    )
    return found, recorder.lines


def test_a_cpu_takes_what_it_always_took(tmp_path):
    found, lines = settle(tmp_path, sft(), autocast=torch.bfloat16)
    assert found.batch.settled_tokens == CPU_TOKENS == 8192
    assert lines == [
        "microbatches of 8,192 tokens (batch.microbatch_tokens=auto: as always on a CPU)"
    ]
    assert found.model_copy(update={"batch": sft().batch}) == sft()


def test_a_number_stays_what_it_is_and_nothing_is_said(tmp_path):
    run = sft(123)
    found, lines = settle(tmp_path, run)
    assert found is run
    assert lines == []


def test_all_ranks_take_the_smallest(tmp_path):
    class Two:
        def all_objects(self, choice):
            return [choice, dataclasses.replace(choice, tokens=77)]

    found, _ = settle(tmp_path, sft(), ranks=Two())
    assert found.batch.microbatch_tokens == 77


def states(folder):
    return {
        path.parent.name: json.loads(path.read_text())["microbatch_tokens"]
        for path in folder.glob("checkpoints/*/trainer_state.json")
    }


@pytest.mark.parametrize("schedule", ["synchronous", "one_step_off"])
def test_a_resumed_run_keeps_its_number(tmp_path, monkeypatch, schedule):
    monkeypatch.setattr("workings.training.microbatch_tokens.CPU_TOKENS", 50)
    settings = {"schedule": schedule, "checkpoint": {"every_steps": 1}}
    if schedule == "one_step_off":
        settings["engine"] = {"own_process": True}  # which the loop here does without
    Loop(tmp_path, **settings).run_until(1)
    assert states(tmp_path) == {"step_000001": 50}
    # Another card, or a later version with other arithmetic.
    monkeypatch.setattr("workings.training.microbatch_tokens.CPU_TOKENS", 60)
    Loop(tmp_path, resume="latest", **settings).run()
    assert states(tmp_path) == {"step_000001": 50, "step_000002": 50}


def test_a_number_given_on_resuming_wins(tmp_path):
    settings = {"checkpoint": {"every_steps": 1}}
    Loop(tmp_path, **settings).run_until(1)
    again = {**settings, "batch": {"microbatch_tokens": 40}}
    Loop(tmp_path, resume="latest", **again).run()
    assert states(tmp_path) == {"step_000001": 8192, "step_000002": 40}
