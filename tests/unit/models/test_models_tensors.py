"""Tensor files: what they hold comes back, and nothing else gets in or out."""

from __future__ import annotations

import enum
import os
import pickle
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from workings.errors import CheckpointError
from workings.models.tensors import load_tensors, save_tensors


def test_an_optimizer_state_survives(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.randn(3, generator=torch.Generator().manual_seed(0)))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    state = {
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
        "nested": [1, 2.5, None, True, "text", (torch.bfloat16, torch.Size([2]))],
        "ordered": OrderedDict(a=b"bytes"),
    }
    save_tensors(tmp_path / "state.pt", state)
    loaded: Any = load_tensors(tmp_path / "state.pt")
    assert loaded["nested"] == state["nested"]
    assert loaded["ordered"] == state["ordered"]
    assert torch.equal(loaded["random"], state["random"])
    moments = loaded["optimizer"]["state"][0]["exp_avg"]
    assert moments.dtype == torch.float32
    assert torch.equal(moments, optimizer.state_dict()["state"][0]["exp_avg"])
    optimizer.load_state_dict(loaded["optimizer"])


class Colour(enum.StrEnum):
    RED = "red"


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (np.zeros(2), "ndarray"),
        (Colour.RED, "Colour"),
        (Point(1, 2), "Point"),
        ({1, 2}, "set"),
        (Path("x"), "PosixPath"),
    ],
)
def test_what_could_not_be_loaded_again_is_not_saved(
    tmp_path: Path, value: object, named: str
) -> None:
    with pytest.raises(CheckpointError, match=rf"a {named} at \['a'\]\[1\] cannot be saved"):
        save_tensors(tmp_path / "x.pt", {"a": [1, value]})
    assert not (tmp_path / "x.pt").exists()


def test_keys_must_be_plain_too(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"the key \(1, 2\) at the top is a tuple"):
        save_tensors(tmp_path / "x.pt", {(1, 2): 3})


class Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch should_not_exist",)


def test_a_pickle_is_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Evil()}, tmp_path / "evil.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Evil()))
    for name in ("evil.pt", "plain.pt"):
        with pytest.raises(CheckpointError, match="refused, because loading it could run code"):
            load_tensors(tmp_path / name)
    assert not (tmp_path / "should_not_exist").exists()


def test_damaged_and_missing_files_say_so(tmp_path: Path) -> None:
    file = tmp_path / "x.pt"
    with pytest.raises(CheckpointError, match="there is no file"):
        load_tensors(file)
    save_tensors(file, {"a": torch.zeros(1000)})
    file.write_bytes(file.read_bytes()[:-500])
    with pytest.raises(CheckpointError, match="is damaged"):
        load_tensors(file)
