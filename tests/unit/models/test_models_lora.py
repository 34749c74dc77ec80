"""Adapters: put on, saved, loaded, and refused where they would have no effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tiny import tiny_model, tiny_tokenizer
from workings.errors import ModelError
from workings.models.lora import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    adapter_base,
    add_lora,
    load_adapter,
    save_adapter,
)

TOKENIZER = tiny_tokenizer()
TARGETS = ["q_proj", "down_proj"]


def lora(model: Any = None, *, seed: int = 0, **changes: Any) -> Any:
    settings = {"rank": 2, "alpha": 4.0, "dropout": 0.0, "targets": TARGETS, "seed": seed}
    return add_lora(model or tiny_model(TOKENIZER), **(settings | changes))


def train(policy: Any) -> Any:
    """Adapter weights that no initialisation gives."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return policy


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = model(input_ids=torch.tensor([[5, 6, 7]])).logits
    return output


def test_a_new_adapter_is_the_identity_and_alone_is_trained() -> None:
    model = tiny_model(TOKENIZER)
    before = logits(model)
    policy = lora(model)
    assert torch.equal(logits(policy), before)
    trained = {name for name, p in policy.named_parameters() if p.requires_grad}
    assert len(trained) == 2 * 2 * 2
    assert all("lora_" in name for name in trained)
    assert {p.dtype for p in policy.parameters()} == {torch.float32}
    assert not policy.training, "the mode of the model is kept"
    assert policy.base_model.model.model.layers[0].self_attn.q_proj.scaling["default"] == 2.0


def test_the_seed_decides_the_start_and_the_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    first, same, other = (train_free_state(lora(seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def train_free_state(policy: Any) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in policy.named_parameters() if "lora_A" in n}


def test_unknown_targets_list_what_there_is() -> None:
    with pytest.raises(ModelError) as caught:
        lora(targets=["q_proj", "query"])
    assert caught.value.message == (
        "LoRA targets query are not linear layers of LlamaForCausalLM; it has down_proj, "
        "gate_proj, k_proj, lm_head, o_proj, q_proj, up_proj, v_proj"
    )
    with pytest.raises(ModelError, match=r"targets \(none\)"):
        lora(targets=[])


def test_a_tied_head_is_no_target_and_an_untied_one_is() -> None:
    with pytest.raises(ModelError, match="shares its weights with the embedding"):
        lora(targets=["lm_head"])
    assert lora(tiny_model(TOKENIZER, tied=False), targets=["lm_head"])


def test_all_linear_takes_every_layer_but_the_head() -> None:
    policy = lora(targets=["all-linear"])
    targets = {n.split(".lora_A")[0].rpartition(".")[2] for n in train_free_state(policy)}
    assert targets == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_a_second_adapter_is_refused() -> None:
    with pytest.raises(ModelError, match="has an adapter already"):
        lora(lora())


def test_M171_an_adapter_is_two_files_and_comes_back_equal(tmp_path: Path) -> None:
    model = tiny_model(TOKENIZER)
    model.name_or_path = "the-base"
    policy = train(lora(model))
    save_adapter(policy, tmp_path / "a", trained=True)
    assert sorted(f.name for f in (tmp_path / "a").iterdir()) == [ADAPTER_CONFIG, ADAPTER_WEIGHTS]
    assert adapter_base(tmp_path / "a") == "the-base"
    again = load_adapter(tiny_model(TOKENIZER), tmp_path / "a")
    assert torch.equal(logits(again), logits(policy))
    assert any(p.requires_grad for p in again.parameters())
    frozen = load_adapter(tiny_model(TOKENIZER), tmp_path / "a", trainable=False)
    assert not any(p.requires_grad for p in frozen.parameters())


def test_A10a_peft_itself_reads_what_was_saved(tmp_path: Path) -> None:
    from peft import PeftModel

    policy = train(lora())
    save_adapter(policy, tmp_path, trained=True)
    theirs = PeftModel.from_pretrained(tiny_model(TOKENIZER), str(tmp_path))
    assert torch.equal(logits(theirs.eval()), logits(policy))


def test_A10c_an_adapter_that_never_moved_is_refused_after_training(tmp_path: Path) -> None:
    policy = lora()
    with pytest.raises(ModelError, match="4 of 8 adapter tensors are all zero after training"):
        save_adapter(policy, tmp_path, trained=True)
    save_adapter(policy, tmp_path, trained=False)
    with pytest.raises(ModelError, match="no adapter to save"):
        save_adapter(tiny_model(TOKENIZER), tmp_path, trained=False)


def saved(folder: Path) -> Path:
    save_adapter(train(lora()), folder, trained=True)
    return folder


def test_A10b_missing_and_unexpected_keys_are_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    tensors = load_file(folder / ADAPTER_WEIGHTS)
    name = sorted(tensors)[0]
    save_file({n: t for n, t in tensors.items() if n != name}, folder / ADAPTER_WEIGHTS)
    with pytest.raises(ModelError, match=f"lacks 1 keys, such as {name}"):
        load_adapter(tiny_model(TOKENIZER), folder)
    save_file(tensors | {"base_model.extra": torch.zeros(1)}, folder / ADAPTER_WEIGHTS)
    with pytest.raises(ModelError, match=r"1 unexpected keys, such as base_model\.extra"):
        load_adapter(tiny_model(TOKENIZER), folder)
    renamed = {n.replace("base_model.model.", "model."): t for n, t in tensors.items()}
    save_file(renamed, folder / ADAPTER_WEIGHTS)
    with pytest.raises(ModelError, match=r"lacks 8 keys.* and has 8 unexpected keys"):
        load_adapter(tiny_model(TOKENIZER), folder)


def test_another_base_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    with pytest.raises(ModelError, match=r"of shape .*; this base needs"):
        load_adapter(tiny_model(TOKENIZER, width=64), folder)
    with pytest.raises(ModelError, match="lacks"):
        load_adapter(tiny_model(TOKENIZER, layers=3), folder)
    with pytest.raises(ModelError, match="has an adapter already"):
        load_adapter(lora(), folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type='IA3'; expected 'LORA'"),
        ({"use_dora": True}, "use_dora=True, which is not supported"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save="),
        ({"bias": "all"}, "bias='all'; expected 'none'"),
        ({"target_modules": ["nothing"]}, "LoRA targets nothing are not linear layers"),
    ],
)
def test_other_kinds_of_adapters_are_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    folder = saved(tmp_path)
    file = folder / ADAPTER_CONFIG
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ModelError, match=message):
        load_adapter(tiny_model(TOKENIZER), folder)


def test_folders_that_hold_no_adapter_say_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"holds no {ADAPTER_CONFIG}"):
        load_adapter(tiny_model(TOKENIZER), tmp_path)
    folder = saved(tmp_path / "a")
    (folder / ADAPTER_WEIGHTS).rename(folder / "adapter_model.bin")
    with pytest.raises(ModelError, match=r"holds no adapter_model\.safetensors") as caught:
        load_adapter(tiny_model(TOKENIZER), folder)
    assert "pickle" in str(caught.value.hint)
    (folder / ADAPTER_WEIGHTS).write_bytes(b"nonsense")
    with pytest.raises(ModelError, match="cannot be read"):
        load_adapter(tiny_model(TOKENIZER), folder)
    (folder / ADAPTER_CONFIG).write_text("{")
    with pytest.raises(ModelError, match="is not JSON"):
        load_adapter(tiny_model(TOKENIZER), folder)
    (folder / ADAPTER_CONFIG).write_text(json.dumps({"peft_type": "LORA"}))
    with pytest.raises(ModelError, match="does not say which base model"):
        adapter_base(folder)
