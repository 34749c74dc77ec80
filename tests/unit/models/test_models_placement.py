"""Device, dtype and attention: the choice, its reason, and what is refused."""

from __future__ import annotations

import pytest
import torch

from workings.errors import ModelError
from workings.models import placement
from workings.models.placement import check_attention, choose_device, choose_dtype, make_current

CPU = torch.device("cpu")
CUDA = torch.device("cuda")


def pretend_cuda(monkeypatch: pytest.MonkeyPatch, *, devices: int, bfloat16: bool = True) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: devices > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: bfloat16)


def test_auto_takes_what_is_there_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_cuda(monkeypatch, devices=0)
    assert choose_device("auto") == (CPU, "no CUDA device is present")
    pretend_cuda(monkeypatch, devices=1)
    assert choose_device("auto") == (CUDA, "a CUDA device is present")
    assert choose_device("cpu") == (CPU, "as configured")


def test_devices_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_cuda(monkeypatch, devices=0)
    with pytest.raises(ModelError, match="'cuda' was asked for, but 0 CUDA devices") as caught:
        choose_device("cuda")
    assert "device=cpu" in str(caught.value.hint)
    pretend_cuda(monkeypatch, devices=2)
    assert choose_device("cuda:1").device == torch.device("cuda:1")
    with pytest.raises(ModelError, match="'cuda:2'"):
        choose_device("cuda:2")
    with pytest.raises(ModelError, match="'gpu' is unknown"):
        choose_device("gpu")
    with pytest.raises(ModelError, match="'meta' is not supported"):
        choose_device("meta")


def test_any_card_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    for given, wanted in (("cuda", "cuda:2"), ("cuda:1", "cuda:1"), ("cpu", "cpu")):
        assert placement.numbered(torch.device(given)) == torch.device(wanted)


def test_a_cpu_runs_in_float32_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "cpu_has_bfloat16", lambda: False)
    assert choose_dtype("auto", CPU) == (torch.float32, "float32 is the safe choice on a CPU")
    monkeypatch.setattr(placement, "cpu_has_bfloat16", lambda: True)
    assert "bfloat16 would be faster" in choose_dtype("auto", CPU).reason
    assert choose_dtype("bfloat16", CPU) == (torch.bfloat16, "as configured")


def test_a_gpu_runs_in_bfloat16_where_it_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_cuda(monkeypatch, devices=1)
    assert choose_dtype("auto", CUDA).dtype == torch.bfloat16
    pretend_cuda(monkeypatch, devices=1, bfloat16=False)
    assert choose_dtype("auto", CUDA).dtype == torch.float32
    with pytest.raises(ModelError, match="no bfloat16"):
        choose_dtype("bfloat16", CUDA)


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(ModelError, match="'float16' is unknown; expected auto, float32"):
        choose_dtype("float16", CPU)


def test_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_attention("auto", CPU) == "sdpa"
    assert check_attention("eager", CPU) == "eager"
    with pytest.raises(ModelError, match="'flash' is unknown"):
        check_attention("flash", CPU)
    with pytest.raises(ModelError, match="needs a CUDA device"):
        check_attention("flash_attention_2", CPU)
    monkeypatch.setattr(placement.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="flash-attn package, which is not installed"):
        check_attention("flash_attention_2", CUDA)


def test_a_card_with_a_number_becomes_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    for device in (CPU, CUDA, torch.device("cuda", 1)):
        make_current(device)
    assert current == [torch.device("cuda", 1)]
