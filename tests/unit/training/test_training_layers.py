"""Activation checkpointing and compiled layers change speed and memory, never the result."""

from __future__ import annotations

import contextlib
import copy
import gc
import sys

import pytest
import torch
from transformers import LlamaForCausalLM

from tiny import tiny_model, tiny_tokenizer
from workings.errors import ModelError
from workings.models import liger
from workings.models.lora import add_lora
from workings.models.weights import named_full_weights
from workings.objectives.reductions import StepTotals
from workings.training.activation_checkpointing import OffloadedInputs
from workings.training.compute_weights import weights_in
from workings.training.forward import response_scores
from workings.training.layers import LayerForward, decoder_layers, prepare_layers
from workings.training.optim import build_adamw
from workings.training.packing import TrainRow, pack
from workings.training.reference import Reference
from workings.training.step import policy_step
from workings.training.supervised_loss import supervised_loss

TOKENIZER = tiny_tokenizer()
HOW = ("none", "selective", "full", "offloaded")
ROWS = [
    TrainRow(
        key=k,
        group=k // 2,
        prompt_ids=[5, 9 + k // 2],
        response_ids=[7, 30 + k, 3] * (1 + k % 3),
        mask=[True] * 3 * (1 + k % 3),
    )
    for k in range(6)
]
TOTALS = StepTotals(num_rows=6, num_tokens=36)


def lora(model, *, dropout):
    return add_lora(
        model, rank=2, alpha=4, dropout=dropout, targets=("q_proj", "down_proj"), seed=0
    )


def gradients(model, *, layout="packed", max_rows=2, seed=0, dtype=None):
    """Gradients of a step, in copies of the weights where `dtype` is given."""
    torch.manual_seed(seed)
    batches = pack(ROWS, layout=layout, max_tokens=100, max_rows=max_rows)
    loss, optimizer = supervised_loss(TOTALS), build_adamw(model)
    with contextlib.nullcontext() if dtype is None else weights_in(model, dtype):
        policy_step(model, optimizer, batches, loss, max_grad_norm=0, autocast=dtype)
    return {name: p.grad for name, p in model.named_parameters() if p.requires_grad}


def assert_same(got, want, *, bound=1e-10):
    assert got.keys() == want.keys()
    for name, grad in got.items():
        assert (grad - want[name]).abs().max() <= bound * want[name].abs().max(), name


@pytest.mark.parametrize("how", HOW[1:])
@pytest.mark.parametrize("layout", ["padded", "packed", "documents", "shared_documents"])
def test_gradients_are_those_of_none(how, layout):
    want = gradients(tiny_model(TOKENIZER, dtype=torch.float64), layout=layout)
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    prepare_layers(model, checkpointing=how)
    assert_same(gradients(model, layout=layout), want)


@pytest.mark.parametrize("how", HOW[1:])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_adapters_and_their_dropout_draw_the_same_numbers_again(how, dropout):
    results = []
    for chosen in ("none", how):
        model = lora(tiny_model(TOKENIZER, dtype=torch.float64), dropout=dropout)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
        prepare_layers(model, checkpointing=chosen)
        results.append(gradients(model.to(torch.float64)))
    assert_same(results[1], results[0])
    if dropout:
        other = gradients(model, seed=5)
        assert any(not torch.equal(other[name], grad) for name, grad in results[1].items())


@pytest.mark.parametrize("how", HOW)
def test_copies_in_lower_precision_are_recomputed_in_it(how):
    model = tiny_model(TOKENIZER)
    prepare_layers(model, checkpointing=how)
    got = gradients(model, layout="documents", dtype=torch.bfloat16)
    want = gradients(tiny_model(TOKENIZER), layout="documents", dtype=torch.bfloat16)
    assert_same(got, want, bound=0)


def saved_bytes(how):
    """Bytes that the graph of one forward pass keeps."""
    model = tiny_model(TOKENIZER, layers=4)
    prepare_layers(model, checkpointing=how)
    model.train()
    (batch,) = pack(ROWS, layout="documents", max_tokens=100)
    kept = {}

    def note(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        scores = response_scores(model, batch)
    del scores
    return sum(size for place, size in kept.items() if place not in own)


def test_full_keeps_less_than_none():
    assert saved_bytes("full") < 0.5 * saved_bytes("none")


def test_names_classes_and_weights_stay_what_they_are():
    model = tiny_model(TOKENIZER)
    kinds = [type(module) for module in model.modules()]
    before = dict(named_full_weights(model))
    prepare_layers(model, checkpointing="full", kernels="compiled")
    assert [type(module) for module in model.modules()] == kinds
    after = dict(named_full_weights(model))
    assert before.keys() == after.keys() == model.state_dict().keys() - {"lm_head.weight"}
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    prepare_layers(model)
    assert not any(
        "forward" in layer.__dict__ and isinstance(layer.forward, LayerForward)
        for layer in decoder_layers(model)
    )


def test_a_copy_runs_its_own_layers():
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    prepare_layers(model, checkpointing="full")
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert_same(gradients(twin), gradients(tiny_model(TOKENIZER, dtype=torch.float64)))
    assert twin.model.layers[0].forward._layer is twin.model.layers[0]
    assert twin.model.layers[0].forward._config is twin.config


def test_a_reference_is_not_moved_by_training():
    model = tiny_model(TOKENIZER)
    prepare_layers(model, checkpointing="full")
    reference = Reference(model)
    batches = pack(ROWS, layout="packed", max_tokens=100)
    before = reference.scores(batches)[0]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    assert torch.equal(reference.scores(batches)[0], before)


@pytest.mark.parametrize("how", HOW)
def test_sampling_with_a_cache_leaves_layers_as_they_are(how, monkeypatch):
    model = tiny_model(TOKENIZER)
    ids = torch.tensor([[1, 2, 3]])
    want = model.generate(ids, max_new_tokens=4, do_sample=False)
    prepare_layers(model, checkpointing=how, kernels="compiled")
    monkeypatch.setattr(torch, "compile", None)  # would raise if it were called
    assert torch.equal(model.generate(ids, max_new_tokens=4, do_sample=False), want)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # read by the compiler
@pytest.mark.parametrize(
    "how", ["none", "selective", *(pytest.param(h, marks=pytest.mark.slow) for h in HOW[2:])]
)
def test_compiled_layers_give_the_same_gradients(how, monkeypatch):
    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f: compiler(f, backend="aot_eager"))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    want = gradients(tiny_model(TOKENIZER, dtype=torch.float64), layout="documents")
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    prepare_layers(model, checkpointing=how, kernels="compiled")
    assert_same(gradients(model, layout="documents"), want)
    # All layers share what was compiled, and other lengths compile it once more.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


def test_a_model_without_a_list_of_layers_is_refused():
    model = tiny_model(TOKENIZER)
    model.model.layers = torch.nn.Sequential(*model.model.layers)
    assert prepare_layers(model, kernels="auto") == "plain layers"  # nothing is asked of it
    with pytest.raises(ModelError, match="LlamaForCausalLM has no list of its 2 layers"):
        prepare_layers(model, checkpointing="full")


def test_offloaded_inputs_that_are_never_fetched_are_let_go():
    inputs = OffloadedInputs()
    kept = inputs.put(torch.ones(3))
    dropped = inputs.put(torch.zeros(3))
    del dropped
    gc.collect()
    last = inputs.put(torch.full((3,), 2.0))
    assert inputs.get(last).tolist() == [2, 2, 2]
    assert inputs.get(kept).tolist() == [1, 1, 1]
    assert len(inputs._order) == 2


def test_kernels_are_chosen_and_named(monkeypatch):
    model = tiny_model(TOKENIZER)
    assert prepare_layers(model, kernels="auto") == "plain layers"
    text = "compiled layers, full activation checkpointing"
    assert prepare_layers(model, kernels="compiled", checkpointing="full") == text
    monkeypatch.setattr(liger, "has_liger", lambda: False)
    with pytest.raises(ModelError, match="needs liger-kernel, which is not installed"):
        prepare_layers(model, kernels="liger")
    monkeypatch.setattr(liger, "has_liger", lambda: True)
    monkeypatch.setattr(liger, "liger_supports", lambda model: False)
    with pytest.raises(ModelError, match="no kernels for the family llama"):
        prepare_layers(model, kernels="liger")
    monkeypatch.setattr(liger, "liger_supports", lambda model: True)
    with pytest.raises(ModelError, match="need a CUDA device; the model is on cpu"):
        prepare_layers(model, kernels="liger")


def test_selective_checkpointing_survives_a_rotation_in_place(monkeypatch):
    """As Liger's is: it writes over the outputs of two products that are kept, without a sign."""
    family = sys.modules[LlamaForCausalLM.__module__]
    plain = family.apply_rotary_pos_emb

    def in_place(query, key, *rest):
        rotated = plain(query, key, *rest)
        for tensor, result in zip((query, key), rotated, strict=True):
            tensor.detach().numpy()[:] = result.detach().numpy()
        return rotated

    want = gradients(tiny_model(TOKENIZER, dtype=torch.float64))
    found = []
    for rotate in (in_place, liger.leaving_what_is_kept(in_place)):
        monkeypatch.setattr(family, "apply_rotary_pos_emb", rotate)
        model = tiny_model(TOKENIZER, dtype=torch.float64)
        prepare_layers(model, checkpointing="selective")
        found.append(gradients(model))
    name = "model.layers.0.self_attn.q_proj.weight"
    assert (found[0][name] - want[name]).abs().max() > 1e-3 * want[name].abs().max()
    assert_same(found[1], want)
    assert liger.leaving_what_is_kept(rotate) is rotate
