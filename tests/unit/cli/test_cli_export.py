"""`workings export`: what is taken, what is written, and that it loads with plain transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from workings.cli.main import main

Captured = pytest.CaptureFixture[str]


def _logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([[5, 6, 7, 8]])).logits  # type: ignore[no-any-return]


def test_the_final_model_of_a_run_with_its_card(
    grpo_run: Path, tmp_path: Path, capsys: Captured
) -> None:
    target = tmp_path / "out"
    assert main(["export", str(grpo_run), str(target)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{target}\n"
    assert f"note: exporting {grpo_run / 'final'}, the run's final model\n" in err
    card = (target / "README.md").read_text()
    assert card == (grpo_run / "final" / "README.md").read_text()
    assert "trained with Workings (grpo, seed 3)" in card
    exported = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    trained = AutoModelForCausalLM.from_pretrained(grpo_run / "final", dtype=torch.float32)
    assert torch.equal(_logits(exported), _logits(trained))
    assert AutoTokenizer.from_pretrained(target).chat_template


def test_the_latest_whole_checkpoint_where_a_run_was_stopped(
    grpo_run: Path, tmp_path: Path, capsys: Captured
) -> None:
    run = tmp_path / "run"
    shutil.copytree(grpo_run / "checkpoints", run / "checkpoints")
    (run / "checkpoints" / "step_000002" / "model.safetensors").write_bytes(b"damaged")
    assert main(["export", str(run), str(tmp_path / "out")]) == 0
    checkpoint = run / "checkpoints" / "step_000001"
    assert f"exporting {checkpoint}, the run's latest checkpoint" in capsys.readouterr().err
    # A checkpoint has no card of its own; the settings that it holds make one.
    assert "trained with Workings (grpo, seed 3)" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("wanted", ["merged", "model"])
def test_an_adapter_is_merged(wanted: str, lora_run: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert main(["export", str(lora_run), str(target), "--format", wanted]) == 0
    config = json.loads((lora_run / "final" / "adapter_config.json").read_text())
    base = AutoModelForCausalLM.from_pretrained(
        config["base_model_name_or_path"], dtype=torch.float32
    )
    untrained = _logits(base)
    with_adapter = _logits(PeftModel.from_pretrained(base, lora_run / "final"))
    merged = _logits(AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32))
    torch.testing.assert_close(merged, with_adapter, atol=1e-4, rtol=0)
    assert not torch.allclose(merged, untrained, atol=1e-3)


def test_the_adapter_alone(lora_run: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert main(["export", str(lora_run), str(target), "--format", "adapter"]) == 0
    assert not list(target.glob("model*.safetensors"))
    names = ("adapter_config.json", "adapter_model.safetensors", "chat_template.jinja", "README.md")
    assert all((target / name).is_file() for name in names)


def test_the_native_format(grpo_run: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    checkpoint = grpo_run / "checkpoints" / "step_000001"
    assert main(["export", str(checkpoint), str(target), "--format", "pytorch"]) == 0
    state = torch.load(target / "pytorch_model.bin", weights_only=True)
    trained = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    assert torch.equal(state["model.norm.weight"], trained.state_dict()["model.norm.weight"])


def test_a_model_of_unknown_origin_gets_a_plain_card(tiny_folder: Path, tmp_path: Path) -> None:
    assert main(["export", str(tiny_folder), str(tmp_path / "out")]) == 0
    card = (tmp_path / "out" / "README.md").read_text()
    assert "no settings of a run were found with it" in card


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["RUN", "OUT", "--format", "modle"], 2, "unknown export format 'modle'; did you mean"),
        (["RUN", "OUT", "--format", "adapter"], 2, "so there is no adapter to export as 'adapter'"),
        (["nowhere", "OUT"], 2, "nowhere is not a folder"),
        (["EMPTY", "OUT"], 1, "holds no model and no whole checkpoint"),
        (["RUN", "RUN"], 1, "exists already"),
    ],
)
def test_what_cannot_be_exported(
    arguments: list[str],
    code: int,
    message: str,
    grpo_run: Path,
    tmp_path: Path,
    capsys: Captured,
) -> None:
    (tmp_path / "empty").mkdir()
    places = {"RUN": grpo_run, "OUT": tmp_path / "out", "EMPTY": tmp_path / "empty"}
    assert main(["export", *(str(places.get(word, word)) for word in arguments)]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
