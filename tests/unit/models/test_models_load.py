"""Loading a model: what comes back, what the report says, what is refused."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tiny import save_tiny, tiny_model, tiny_tokenizer
from workings.errors import CheckpointError, ModelError
from workings.models.load import load_model
from workings.models.lora import add_lora, save_adapter
from workings.models.save import save_policy

TOKENIZER = tiny_tokenizer()


def edit(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = model(input_ids=torch.tensor([[5, 6, 7]])).logits
    return output


def test_a_folder_loads_as_float32_masters_with_a_report(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    tiny_model(TOKENIZER).to(torch.bfloat16).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    loaded = load_model(str(folder), dtype="bfloat16", device="cpu")
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}
    assert loaded.compute_dtype == torch.bfloat16
    assert loaded.device == torch.device("cpu")
    assert loaded.attention == "sdpa"
    assert not loaded.model.training
    assert loaded.model.lm_head.weight is loaded.model.model.embed_tokens.weight
    text = "\n".join(loaded.report)
    assert f"model: {folder} (folder)" in text
    assert "device: cpu (as configured)" in text
    assert "arithmetic: bfloat16 (as configured)" in text
    assert "attention: sdpa" in text
    assert "EOS: <|im_end|> (3)" in text


def test_A16_generation_config_is_neutralised_and_every_eos_id_is_collected(
    tmp_path: Path,
) -> None:
    folder = save_tiny(tmp_path)
    edit(folder / "config.json", eos_token_id=[3, 9])
    edit(
        folder / "generation_config.json",
        eos_token_id=[11, 3],
        top_k=1,
        do_sample=True,
        repetition_penalty=1.1,
    )
    loaded = load_model(str(folder), device="cpu")
    assert loaded.eos_token_ids == (3, 9, 11)
    config = loaded.model.generation_config
    assert config.eos_token_id == [3, 9, 11]
    assert config.pad_token_id == TOKENIZER.pad_token_id
    assert config.top_k != 1
    assert config.repetition_penalty in (None, 1.0)
    assert any(
        "generation_config of the model: not used (top_k=1, repetition_penalty=1.1)" in line
        for line in loaded.report
    )
    plain = load_model(str(save_tiny(tmp_path / "plain")), device="cpu")
    assert not any("not used" in line for line in plain.report)


def test_missing_weights_are_refused_and_extra_ones_reported(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    save_file(tensors | {"extra.weight": torch.zeros(2)}, file, metadata={"format": "pt"})
    loaded = load_model(str(folder), device="cpu")
    assert any("1 tensors of the files are not part of the model" in r for r in loaded.report)
    tensors.pop("model.norm.weight")
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 weights .*model\.norm\.weight.*stay random"):
        load_model(str(folder), device="cpu")


def test_a_tokenizer_larger_than_the_embedding_is_refused(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path)
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<new>"])
    tokenizer.save_pretrained(folder)
    rows = len(TOKENIZER)
    with pytest.raises(ModelError, match=f"token ids up to {rows}, but .* has {rows} rows"):
        load_model(str(folder), device="cpu")


def test_a_pickle_of_more_than_tensors_is_refused(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path)
    (folder / "model.safetensors").unlink()

    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.system, (f"touch {tmp_path}/ran",)

    torch.save({"model.norm.weight": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises((CheckpointError, ModelError), match="could run code"):
        load_model(str(folder), device="cpu")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))
    with pytest.raises((CheckpointError, ModelError)):
        load_model(str(folder), device="cpu")
    assert not (tmp_path / "ran").exists()


def test_broken_and_absent_models_name_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_tiny(tmp_path)
    (folder / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ModelError, match=f"cannot load the model {folder}"):
        load_model(str(folder), device="cpu")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def offline(*args: Any, **kwargs: Any) -> Any:
        raise OSError("we couldn't connect to the hub")

    from transformers import AutoModelForCausalLM

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", offline)
    with pytest.raises(ModelError, match="cannot load the model smolm2: we couldn't") as caught:
        load_model("smolm2", device="cpu")
    assert "names that need no network: smollm2" in str(caught.value.hint)


def test_settings_reach_the_model(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path)
    loaded = load_model(
        str(folder),
        device="cpu",
        attention="eager",
        chat_template="{{ messages[0]['content'] }}",
    )
    assert loaded.attention == "eager"
    assert loaded.tokenizer.chat_template == "{{ messages[0]['content'] }}"
    text = "\n".join(loaded.report)
    assert "chat template: replaced" in text
    with pytest.raises(ModelError, match="'fp8' is unknown"):
        load_model(str(folder), dtype="fp8")


def trained_adapter(base: Path, folder: Path, *, with_tokenizer: bool) -> Any:
    loaded = load_model(str(base), device="cpu")
    policy = add_lora(loaded.model, rank=2, alpha=4, dropout=0.0, targets=["q_proj"], seed=0)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(1))
    if with_tokenizer:
        save_policy(policy, loaded.tokenizer, folder, trained=True)
    else:
        save_adapter(policy, folder, trained=True)
    return policy


@pytest.mark.parametrize("with_tokenizer", [True, False])
def test_M126_an_adapter_folder_brings_its_base(tmp_path: Path, with_tokenizer: bool) -> None:
    base = save_tiny(tmp_path / "base")
    policy = trained_adapter(base, tmp_path / "adapter", with_tokenizer=with_tokenizer)
    alone = load_model(str(tmp_path / "adapter"), device="cpu", adapter_trainable=False)
    named = load_model(str(base), adapter=str(tmp_path / "adapter"), device="cpu")
    for loaded in (alone, named):
        assert torch.allclose(logits(loaded.model), logits(policy), atol=1e-6)
        assert loaded.tokenizer.encode("hello") == TOKENIZER.encode("hello")
        assert any(line.startswith("adapter: ") for line in loaded.report)
    assert not any(parameter.requires_grad for parameter in alone.model.parameters())
    trained = {n for n, parameter in named.model.named_parameters() if parameter.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
    with pytest.raises(ModelError, match="is itself an adapter"):
        load_model(str(tmp_path / "adapter"), adapter=str(tmp_path / "adapter"))


def test_a_head_that_should_be_tied_and_is_not_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_tiny(tmp_path)
    from workings.models import load

    read = load._read_weights

    def untied(*args: Any, **kwargs: Any) -> Any:
        model, notes = read(*args, **kwargs)
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
        return model, notes

    monkeypatch.setattr(load, "_read_weights", untied)
    with pytest.raises(ModelError, match="ties the output head to the embedding"):
        load_model(str(folder), device="cpu")
