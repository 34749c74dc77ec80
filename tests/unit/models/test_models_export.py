"""Exports load in a fresh process and give the live policy's logits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tiny import save_tiny, tiny_tokenizer
from workings.errors import ModelError
from workings.models.export import FORMATS, export_model
from workings.models.load import load_model
from workings.models.lora import add_lora
from workings.models.save import save_policy

IDS = torch.tensor([[5, 6, 7, 8, 9]])
FRESH = """
import sys, torch
from transformers import AutoModelForCausalLM
from peft import PeftModel

out, base, adapter, *folders = sys.argv[1:]
ids = torch.tensor([[5, 6, 7, 8, 9]])
load = lambda folder: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
models = {"base": load(base), "adapter": PeftModel.from_pretrained(load(base), adapter).eval()}
models |= {folder.rpartition("/")[2]: load(folder) for folder in folders}
with torch.no_grad():
    logits = {name: model(input_ids=ids).logits for name, model in models.items()}
logits["tied"] = {n: int(m.get_output_embeddings().weight is m.get_input_embeddings().weight)
                  for n, m in models.items()}
torch.save(logits, out)
"""


def trained_policy(base: Path) -> tuple[Any, Any]:
    """A LoRA policy after one real optimizer step."""
    loaded = load_model(str(base), device="cpu")
    policy = add_lora(
        loaded.model, rank=4, alpha=16, dropout=0.0, targets=["q_proj", "up_proj"], seed=0
    )
    optimizer = torch.optim.AdamW([p for p in policy.parameters() if p.requires_grad], lr=0.05)
    for _ in range(3):
        policy(input_ids=IDS, labels=IDS).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return policy, loaded.tokenizer


def live_logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = model.eval()(input_ids=IDS).logits
    return output


def test_A10a_adapter_merged_and_live_agree_in_a_fresh_process(tmp_path: Path) -> None:
    base = save_tiny(tmp_path / "base")
    policy, tokenizer = trained_policy(base)
    source = tmp_path / "step_3"
    save_policy(policy, tokenizer, source, trained=True)
    folders = []
    for kind in FORMATS:
        folder = export_model(source, tmp_path / "out" / kind, format=kind, card=f"# {kind}\n")
        assert (folder / "README.md").read_text() == f"# {kind}\n"
        assert (folder / "chat_template.jinja").is_file()
        folders.append(folder)
    assert (tmp_path / "out" / "pytorch" / "pytorch_model.bin").is_file()
    assert not list((tmp_path / "out" / "pytorch").glob("*.safetensors"))
    result = tmp_path / "logits.pt"
    command = [sys.executable, "-c", FRESH, str(result), str(base), *map(str, folders)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    found = torch.load(result, weights_only=True)
    live = live_logits(policy)
    for kind in FORMATS:
        assert torch.allclose(found[kind], live, atol=1e-4), kind
    assert (found["base"] - live).abs().max() > 0.01
    assert set(found["tied"].values()) == {1}
    ours = load_model(str(tmp_path / "out" / "pytorch"), device="cpu")
    assert torch.allclose(live_logits(ours.model), live, atol=1e-4)


def test_M172_a_full_model_exports_in_both_formats_and_dtypes(tmp_path: Path) -> None:
    base = save_tiny(tmp_path / "base")
    live = live_logits(load_model(str(base), device="cpu").model)
    for kind in ("safetensors", "pytorch"):
        folder = export_model(base, tmp_path / kind, format=kind, card="")
        again = load_model(str(folder), device="cpu")
        assert torch.equal(live_logits(again.model), live)
    half = export_model(base, tmp_path / "half", format="safetensors", card="", dtype="bfloat16")
    tensors = load_file(half / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert '"dtype": "bfloat16"' in (half / "config.json").read_text()


def test_exports_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    base = save_tiny(tmp_path / "base")
    for kind in ("adapter", "merged"):
        with pytest.raises(ModelError, match="full model without an adapter"):
            export_model(base, tmp_path / "x", format=kind, card="")
    with pytest.raises(ModelError, match=r"unknown export format 'safetensor'; did you mean"):
        export_model(base, tmp_path / "x", format="safetensor", card="")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="exists already"):
        export_model(base, base, format="safetensors", card="")
    assert not (tmp_path / "x").exists()


def test_an_export_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workings.models import export

    base = save_tiny(tmp_path / "base")

    def broken(tokenizer: Any, folder: Path) -> None:
        raise OSError("disk trouble")

    monkeypatch.setattr(export, "save_tokenizer", broken)
    with pytest.raises(OSError, match="disk trouble"):
        export_model(base, tmp_path / "out", format="safetensors", card="")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base"]


def test_the_tokenizer_of_the_checkpoint_is_exported(tmp_path: Path) -> None:
    base = save_tiny(tmp_path / "base")
    policy, tokenizer = trained_policy(base)
    tokenizer.chat_template = "{{ messages }} changed in training"
    save_policy(policy, tokenizer, tmp_path / "step_3", trained=True)
    folder = export_model(tmp_path / "step_3", tmp_path / "merged", format="merged", card="")
    assert (folder / "chat_template.jinja").read_text() == tokenizer.chat_template
    assert tiny_tokenizer().chat_template != tokenizer.chat_template
