"""The fused parts of a layer against autograd of their formulas, and whole layers against
transformers' own."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from workings.errors import ModelError
from workings.models.lora import add_lora
from workings.training.compute_weights import weights_in
from workings.training.fused.adamw import FusedAdamW, norm_of
from workings.training.fused.gated import gated
from workings.training.fused.layer import FusedForward, FusedNorm, fused_supports
from workings.training.fused.lean import normed_product
from workings.training.fused.norm import add_rms_norm, rms_norm
from workings.training.fused.projection import joined, joint_linear
from workings.training.fused.rotation import Heads, rotated
from workings.training.layers import LayerForward, decoder_layers, prepare_layers

WIDE = torch.float64


def same_gradients(ours, theirs, *inputs):
    """Values, and gradients of a random mix of all outputs, of two functions of the same inputs."""
    results = []
    for function in (ours, theirs):
        given = [tensor.clone().requires_grad_() for tensor in inputs]
        outputs = function(*given)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        generator = torch.Generator().manual_seed(9)
        mix = [torch.randn(o.shape, generator=generator, dtype=o.dtype) for o in outputs]
        loss = sum((o * m).sum() for o, m in zip(outputs, mix, strict=True))
        results.append((outputs, torch.autograd.grad(loss, given)))
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=WIDE)


def plain_norm(x, weight, eps=1e-5):
    return weight * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def test_a_norm_and_its_stream():
    same_gradients(
        lambda x, w: rms_norm(x, w, 1e-5),
        lambda x, w: (plain_norm(x, w), x * 1),
        drawn(5, 12),
        drawn(12, seed=1),
    )


def test_a_norm_whose_stream_nobody_reads():
    same_gradients(
        lambda x, w: rms_norm(x, w, 1e-5)[0], plain_norm, drawn(5, 12), drawn(12, seed=1)
    )


def test_a_stream_whose_norm_nobody_reads():
    x = drawn(5, 12).requires_grad_()
    weight = drawn(12).requires_grad_()
    rms_norm(x, weight, 1e-5)[1].sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    assert weight.grad is None


def test_a_norm_of_a_sum():
    same_gradients(
        lambda d, x, w: add_rms_norm(d, x, w, 1e-5),
        lambda d, x, w: (plain_norm(x + d, w), x + d),
        drawn(5, 12),
        drawn(5, 12, seed=1),
        drawn(12, seed=2),
    )


def test_a_gated_product():
    def plain(both):
        gate, up = both.chunk(2, -1)
        return gate * torch.sigmoid(gate) * up

    same_gradients(gated, plain, drawn(5, 14) * 3)


def test_a_rotation_divides_and_turns_the_projection():
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    heads = Heads(queries=4, keys=2, width=6)
    angles = drawn(5, 3, seed=3)
    cos, sin = (torch.cat([table, table], -1) for table in (angles.cos(), angles.sin()))

    def plain(qkv):
        parts = [part.unflatten(1, (-1, 6)) for part in qkv.split([24, 12, 12], 1)]
        turned = apply_rotary_pos_emb(*parts[:2], cos, sin)
        return (*turned, parts[2])

    same_gradients(lambda qkv: rotated(qkv, cos, sin, heads), plain, drawn(5, 48))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("adjacent", [False, True])
def test_a_joint_product_is_its_parts(biased, adjacent):
    torch.manual_seed(0)
    maps = [torch.nn.Linear(7, size, bias=biased, dtype=WIDE) for size in (5, 2, 3)]
    if adjacent:
        memory = torch.randn(10, 7, dtype=WIDE)
        for one, part in zip(maps, memory.split([5, 2, 3]), strict=True):
            one.weight = torch.nn.Parameter(part)
        assert joined([one.weight for one in maps]).data_ptr() == memory.data_ptr()
    x = drawn(4, 7).requires_grad_()
    weights = [p for one in maps for p in one.parameters()]
    direction = drawn(4, 10, seed=5)
    got, want = joint_linear(x, maps), torch.cat([one(x) for one in maps], -1)
    torch.testing.assert_close(got, want)
    for first, second in zip(
        torch.autograd.grad(got, [x, *weights], direction),
        torch.autograd.grad(want, [x, *weights], direction),
        strict=True,
    ):
        torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-14)


def test_a_joint_product_gives_no_gradient_where_none_is_wanted():
    maps = [torch.nn.Linear(7, size).requires_grad_(False) for size in (5, 2)]
    x = torch.randn(4, 7, requires_grad=True)
    joint_linear(x, maps).sum().backward()
    assert x.grad is not None
    assert all(p.grad is None for one in maps for p in one.parameters())
    maps = [torch.nn.Linear(7, size) for size in (5, 2)]
    joint_linear(x.detach(), maps).sum().backward()
    assert all(p.grad is not None for one in maps for p in one.parameters())


def test_parts_are_joined_by_a_copy_where_they_lie_apart():
    memory = torch.arange(12.0).view(6, 2)
    assert torch.equal(joined([memory[:2], memory[2:3]]), memory[:3])
    apart = joined([memory[:2], memory[4:]])
    assert torch.equal(apart, torch.cat([memory[:2], memory[4:]]))
    assert apart.data_ptr() != memory.data_ptr()
    assert torch.equal(joined([memory[3:], memory[:3]]), torch.cat([memory[3:], memory[:3]]))


SHAPE = {
    "vocab_size": 60,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 64,
}
FAMILIES = {
    "llama": LlamaConfig(**SHAPE),
    "llama3 rotation": LlamaConfig(
        **SHAPE,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ),
    "qwen2": Qwen2Config(**SHAPE),
    "qwen3": Qwen3Config(**SHAPE),
}


def model_of(family, dtype=WIDE):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(copy.deepcopy(FAMILIES[family]), dtype=dtype)
    for parameter in model.parameters():  # no bias or norm is left at 0 or 1
        torch.nn.init.normal_(parameter, mean=0.1 if parameter.ndim == 1 else 0.0, std=0.3)
    return model.train()


def outcome(model, *, mask=None):
    """Logits and all gradients."""
    ids = torch.tensor([[1, 5, 9, 30, 2, 7], [3, 3, 8, 1, 40, 41]])
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    direction = torch.randn(logits.shape, generator=torch.Generator().manual_seed(4), dtype=WIDE)
    (logits * direction).sum().backward()
    return logits.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full", "offloaded"])
@pytest.mark.parametrize("family", FAMILIES)
def test_fused_layers_compute_what_the_family_computes(family, checkpointing):
    want = outcome(model_of(family))
    model = model_of(family)
    text = prepare_layers(model, kernels="fused", checkpointing=checkpointing)
    assert text.startswith("fused layers")
    got = outcome(model)
    assert got[1].keys() == want[1].keys() == dict(model.named_parameters()).keys()
    # The tables of the rotation, the scores and the norms are float32 inside transformers.
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_selective_fused_layers_keep_the_outputs_of_products_and_little_else():
    kept = {}
    for checkpointing in ("none", "selective"):
        model = model_of("qwen2")
        prepare_layers(model, kernels="fused", checkpointing=checkpointing)
        weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        sizes = {}

        def note(tensor, weights=weights, sizes=sizes):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        ids = torch.arange(20).view(1, -1)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            hidden = model.model(input_ids=ids, use_cache=False)[0]
        kept[checkpointing] = sum(sizes.values())
        del hidden
    gated, normed = SHAPE["intermediate_size"], 2 * SHAPE["hidden_size"]
    spared = SHAPE["num_hidden_layers"] * 20 * (gated + normed) * 8
    assert kept["none"] - kept["selective"] == pytest.approx(spared, rel=0.02)


@pytest.mark.parametrize("frozen", ["q_proj", "down_proj", "input_layernorm", "k_proj.bias"])
def test_selective_fused_layers_leave_frozen_weights_alone(frozen):
    found = []
    for checkpointing in ("none", "selective"):
        model = model_of("qwen2")
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(frozen not in name)
        prepare_layers(model, kernels="fused", checkpointing=checkpointing)
        found.append(outcome(model))
    assert found[0][1].keys() == found[1][1].keys()
    assert not any(frozen in name for name in found[0][1])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-11)


def test_fused_layers_hand_on_a_mask():
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]])
    want = outcome(model_of("qwen2"), mask=mask)
    model = model_of("qwen2")
    prepare_layers(model, kernels="fused")
    torch.testing.assert_close(outcome(model, mask=mask), want, rtol=1e-4, atol=1e-4)


def test_fused_layers_train_adapters():
    def prepared(kernels):
        model = add_lora(
            model_of("qwen2"),
            rank=2,
            alpha=4,
            dropout=0.0,
            targets=("q_proj", "up_proj", "o_proj"),
            seed=0,
        ).to(WIDE)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
        prepare_layers(model, kernels=kernels)
        return model

    want, got = outcome(prepared("plain")), outcome(prepared("fused"))
    assert want[1].keys() == got[1].keys()
    assert all("lora_" in name for name in got[1])
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_copies_of_the_weights_are_multiplied_where_they_lie():
    model = model_of("qwen2", torch.float32)
    prepare_layers(model, kernels="fused")
    layer = model.model.layers[1]
    with weights_in(model, torch.bfloat16):
        attention, mlp = layer.self_attn, layer.mlp
        for maps in (
            (attention.q_proj, attention.k_proj, attention.v_proj),
            (mlp.gate_proj, mlp.up_proj),
        ):
            weights = [one.weight for one in maps]
            joint = joined(weights)
            assert joint.data_ptr() == weights[0].data_ptr()
            assert torch.equal(joint, torch.cat(weights))
        differentiate_backbone(model)
    exact = model_of("qwen2", torch.float32)
    differentiate_backbone(exact)
    masters, want = (
        torch.cat([p.grad.flatten() for p in each.model.parameters()]) for each in (model, exact)
    )
    assert masters.dtype == torch.float32
    assert float((masters - want).norm() / want.norm()) < 0.05


def differentiate_backbone(model):
    hidden = model.model(input_ids=torch.tensor([[1, 5, 9, 30]]), use_cache=False)[0].float()
    direction = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(4))
    (hidden * direction).sum().backward()


def test_gradients_of_copies_stay_as_they_are_until_another_is_added():
    wide, narrow = model_of("qwen2", torch.float32), model_of("qwen2", torch.float32)
    for model, widens in ((wide, True), (narrow, False)):
        with weights_in(model, torch.bfloat16, widens=widens):
            differentiate_backbone(model)
    inner = [p for name, p in narrow.model.named_parameters() if "embed" not in name]
    assert {p.grad.dtype for p in inner} == {torch.bfloat16}
    for got, want in zip(narrow.model.parameters(), wide.model.parameters(), strict=True):
        assert want.grad.dtype == torch.float32
        assert torch.equal(got.grad.float(), want.grad)
    for model in (wide, narrow):
        with weights_in(model, torch.bfloat16, widens=True):
            differentiate_backbone(model)
    for got, want in zip(narrow.model.parameters(), wide.model.parameters(), strict=True):
        assert got.grad.dtype == torch.float32
        assert torch.equal(got.grad, want.grad)


@pytest.mark.parametrize("adds", [False, True])
def test_a_normed_product_is_its_parts(adds):
    torch.manual_seed(0)
    maps = [torch.nn.Linear(12, size, dtype=WIDE) for size in (5, 3)]

    def parts(stream, weight, *delta):
        found = (
            add_rms_norm(*delta, stream, weight, 1e-5) if delta else rms_norm(stream, weight, 1e-5)
        )
        return joint_linear(found[0], maps), found[1]

    def whole(stream, weight, *delta):
        return normed_product(delta[0] if delta else None, stream, weight, 1e-5, maps)

    inputs = [drawn(5, 12), drawn(12, seed=1), *([drawn(5, 12, seed=2)] if adds else [])]
    same_gradients(whole, parts, *inputs)
    stream = drawn(5, 12).requires_grad_()
    whole(stream, drawn(12), *inputs[2:])[1].sum().backward()  # the product is not used
    assert torch.equal(stream.grad, torch.ones_like(stream))


def test_the_norm_of_gradients_of_several_dtypes():
    grads = [drawn(30), drawn(4, 5, seed=1).bfloat16(), drawn(7, seed=2).float()]
    want = sum(grad.double().square().sum() for grad in grads).sqrt()
    assert norm_of(grads).item() == pytest.approx(want.item(), rel=1e-6)
    assert norm_of(grads[:1]).dtype == WIDE


def test_the_optimizer_is_torch_s_own_off_a_gpu_and_loads_its_state():
    weights = [torch.nn.Parameter(drawn(4, 3).float()) for _ in range(2)]
    ours = FusedAdamW([weights[0]], lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    theirs = torch.optim.AdamW([weights[1]], lr=1e-2, betas=(0.9, 0.95), eps=1e-8, fused=True)
    theirs.param_groups[0]["weight_decay"] = ours.param_groups[0]["weight_decay"]
    for seed in range(3):
        for weight, optimizer in zip(weights, (ours, theirs), strict=True):
            weight.grad = drawn(4, 3, seed=seed).float()
            optimizer.step()
        assert torch.equal(*weights)
        ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    assert ours.state_dict()["state"][0].keys() == theirs.state_dict()["state"][0].keys()


def test_fused_layers_leave_autocast_to_transformers():
    model = model_of("llama", torch.float32)
    ids = torch.tensor([[1, 5, 9]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = model(input_ids=ids, use_cache=False).logits
        prepare_layers(model, kernels="fused")
        assert torch.equal(model(input_ids=ids, use_cache=False).logits, want)


def test_a_model_samples_with_a_cache_as_before():
    model = model_of("llama", torch.float32).eval()
    ids = torch.tensor([[1, 5, 9]])
    want = model.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0)
    prepare_layers(model, kernels="fused")
    assert torch.equal(model.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0), want)


def test_the_last_call_counts():
    model = model_of("llama")
    prepare_layers(model, kernels="fused")
    norm = model.model.norm
    assert isinstance(norm.forward, FusedNorm)
    assert isinstance(decoder_layers(model)[0].forward._fast, FusedForward)
    prepare_layers(model, kernels="plain")
    assert not isinstance(norm.forward, FusedNorm)
    assert not isinstance(decoder_layers(model)[0].forward, LayerForward)


def test_a_copy_of_the_model_is_its_own():
    model = model_of("llama")
    prepare_layers(model, kernels="fused")
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    logits, _ = outcome(twin)
    torch.testing.assert_close(logits, outcome(model_of("llama"))[0], rtol=1e-4, atol=1e-4)


def test_what_has_no_fused_layers_is_refused_or_left_alone():
    config = copy.deepcopy(FAMILIES["llama"])
    config.hidden_act = "gelu"
    model = AutoModelForCausalLM.from_config(config)
    assert not fused_supports(model)
    with pytest.raises(ModelError, match="no fused layers for the family llama"):
        prepare_layers(model, kernels="fused")
    assert prepare_layers(model_of("llama"), kernels="auto") == "plain layers"  # on a CPU


def said_by(script):
    """The lines that a script beside this one writes, run in a process of its own."""
    pytest.importorskip("triton", reason="Triton is not installed")
    path = Path(__file__).with_name(script)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    found = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, env=environment, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout.splitlines()


def test_the_kernels_equal_their_definitions():
    assert said_by("interpreted_fused_kernels.py") == ["norm", "gated", "rotation", "adamw"]


def test_the_kernels_compile_for_a_gpu():
    lines = said_by("compiled_fused_kernels.py")
    assert {line.split()[1] for line in lines} == {"_forward_kernel", "_backward_kernel", "_kernel"}
    assert len(lines) == 14
