"""bitsandbytes: a frozen base in 4 or 8 bits, and AdamW with moments in 8. Only this imports it.

4 bits are the NF4 codes of QLoRA (Dettmers et al., arXiv 2305.14314, section 3), the scale of every
64 weights quantised itself; 8 bits are LLM.int8() (arXiv 2208.07339), one scale a row. Embeddings,
norms and the output head stay as they are.

How exact it is. In 4 bits the layers multiply with the dequantised weights, so what `dequantized`
gives is what the forward pass computes with. In 8 bits a GPU rounds the layers' inputs to 8 bits as
well, which no merged weight can show: trainer and sampler then differ by that, and the difference
is measured like every other. Quantising the same weights again gives the same codes on the same
kind of device.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterable
from typing import Any, Literal, get_args

import torch

from workings.errors import ConfigError, ModelError

Quantization = Literal["none", "4bit", "8bit"]
QUANTIZATIONS: tuple[Quantization, ...] = get_args(Quantization)
BLOCK_SIZE = 64
_QUANTIZED = ("Params4bit", "Int8Params")


def require_bitsandbytes(setting: str) -> Any:
    """The module; ConfigError that names the extra where it is not installed."""
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ConfigError(
            f"{setting} needs the package bitsandbytes, which is not installed",
            hint="pip install 'workings[quant]'",
        )
    # On import it advises a CPU kernel that would be fetched from a hub.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    import bitsandbytes

    return bitsandbytes


def quantization_settings(quantization: Quantization, dtype: torch.dtype) -> Any:
    """What `from_pretrained` takes; None for "none". `dtype` is that of the arithmetic."""
    if quantization == "none":
        return None
    require_bitsandbytes(f"model.quantization={quantization}")
    from transformers import BitsAndBytesConfig

    if quantization == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


def settle_quantized(model: torch.nn.Module, name: str) -> None:
    """Make the 4-bit layers of a loaded model ready for training; ModelError where they are not.

    In inference on some CPUs a layer would repack its codes, and could then neither be trained
    through nor dequantised. And on a CPU bitsandbytes (0.50) reads the scales of a layer wrongly
    whose rows do not hold whole blocks.
    """
    for layer_name, layer in model.named_modules():
        if type(getattr(layer, "weight", None)).__name__ != "Params4bit":
            continue
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False
        if layer.weight.device.type == "cpu" and layer.in_features % BLOCK_SIZE:
            raise ModelError(
                f"{layer_name} of {name} has {layer.in_features} inputs; on a CPU 4 bits need a "
                f"multiple of {BLOCK_SIZE}",
                hint="use model.quantization=8bit or none",
            )


def is_quantized(parameter: torch.Tensor) -> bool:
    """True for a weight that is held as codes."""
    return type(parameter).__name__ in _QUANTIZED


def quantization_of(model: torch.nn.Module) -> Quantization:
    """How the weights of a model's layers are held."""
    kinds = {type(parameter).__name__ for parameter in model.parameters()}
    if "Params4bit" in kinds:
        return "4bit"
    return "8bit" if "Int8Params" in kinds else "none"


def dequantized(layer: Any) -> torch.Tensor:
    """The weight [out, in] that a quantised linear layer stands for, in new memory.

    4 bits give the dtype that was quantised, 8 bits float32.
    """
    import bitsandbytes

    weight = layer.weight
    if type(weight).__name__ == "Params4bit":
        whole: torch.Tensor = bitsandbytes.functional.dequantize_4bit(
            weight.data, weight.quant_state
        )
        return whole
    # The scales move from the weight to the layer with the first forward pass.
    scales: torch.Tensor = layer.state.SCB if weight.SCB is None else weight.SCB
    codes: torch.Tensor = weight.data
    return codes.float() * (scales.float() / 127.0).unsqueeze(1)


def adamw_8bit(
    groups: Iterable[dict[str, Any]], *, betas: tuple[float, float], eps: float
) -> torch.optim.Optimizer:
    """AdamW with blockwise 8-bit moments (Dettmers et al., arXiv 2110.02861), at a rate of 0.

    Weights of fewer than 4,096 entries keep float32 moments.
    """
    bitsandbytes = require_bitsandbytes("optimizer.name=adamw_8bit")
    optimizer: torch.optim.Optimizer = bitsandbytes.optim.AdamW8bit(
        list(groups), lr=0.0, betas=betas, eps=eps
    )
    return optimizer
