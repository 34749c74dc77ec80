"""Device, arithmetic and attention for a run: what is chosen, and why in one printable line."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

import torch

from workings.errors import ModelError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ATTENTION = ("eager", "sdpa", "flash_attention_2")


class DeviceChoice(NamedTuple):
    """A device and the reason for it."""

    device: torch.device
    reason: str


class DtypeChoice(NamedTuple):
    """The dtype of the arithmetic (trained weights stay float32) and the reason for it."""

    dtype: torch.dtype
    reason: str


def choose_device(name: str) -> DeviceChoice:
    """The device for `name`: "auto", "cpu", "cuda", "cuda:1". Raises ModelError if absent here."""
    if name == "auto":
        if torch.cuda.is_available():
            return DeviceChoice(torch.device("cuda"), "a CUDA device is present")
        return DeviceChoice(torch.device("cpu"), "no CUDA device is present")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ModelError(
            f"device {name!r} is unknown; expected auto, cpu, cuda or cuda:N"
        ) from None
    if device.type not in ("cpu", "cuda"):
        raise ModelError(f"device {name!r} is not supported; expected auto, cpu, cuda or cuda:N")
    if device.type == "cuda":
        present = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= present:
            raise ModelError(
                f"device {name!r} was asked for, but {present} CUDA devices are visible",
                hint="use device=auto or device=cpu; `workings doctor` lists the devices",
            )
    return DeviceChoice(device, "as configured")


def numbered(device: torch.device) -> torch.device:
    """The device with its number: "cuda" becomes the current card, which some callees ask for."""
    is_any_card = device.type == "cuda" and device.index is None
    return torch.device("cuda", torch.cuda.current_device()) if is_any_card else device


def make_current(device: torch.device) -> None:
    """Make `device` the card that this thread's kernels run on, where it names one.

    Kernels written in Triton run on the current card, wherever their tensors are.
    """
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)


def choose_dtype(name: str, device: torch.device) -> DtypeChoice:
    """The dtype for `name`: "auto", "float32" or "bfloat16", on `device`."""
    if name == "auto":
        if device.type == "cuda":
            if torch.cuda.is_bf16_supported(including_emulation=False):
                return DtypeChoice(torch.bfloat16, "the GPU has bfloat16")
            return DtypeChoice(torch.float32, "the GPU has no bfloat16")
        faster = "; bfloat16 would be faster on this CPU" if cpu_has_bfloat16() else ""
        return DtypeChoice(torch.float32, f"float32 is the safe choice on a CPU{faster}")
    if name not in DTYPES:
        raise ModelError(f"dtype {name!r} is unknown; expected auto, {' or '.join(DTYPES)}")
    if (
        name == "bfloat16"
        and device.type == "cuda"
        and not torch.cuda.is_bf16_supported(including_emulation=False)
    ):
        raise ModelError(
            "dtype=bfloat16 was asked for, but this GPU has no bfloat16", hint="use dtype=float32"
        )
    return DtypeChoice(DTYPES[name], "as configured")


def cpu_has_bfloat16() -> bool:
    """True where the CPU multiplies bfloat16 matrices in hardware (AVX512-BF16 or AMX)."""
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def check_attention(name: str, device: torch.device) -> str:
    """`name` ("sdpa" for "auto") once it is known to be able to run here."""
    if name == "auto":
        return "sdpa"
    if name not in ATTENTION:
        raise ModelError(f"attention {name!r} is unknown; expected auto, {', '.join(ATTENTION)}")
    if name == "flash_attention_2":
        if device.type != "cuda":
            raise ModelError(
                f"attention=flash_attention_2 needs a CUDA device; the device is {device}",
                hint="use attention=sdpa, which calls FlashAttention kernels through torch",
            )
        if importlib.util.find_spec("flash_attn") is None:
            raise ModelError(
                "attention=flash_attention_2 needs the flash-attn package, which is not installed",
                hint="use attention=sdpa, which calls FlashAttention kernels through torch",
            )
    return name
