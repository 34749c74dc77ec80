"""What surrounds the start of vLLM in the trainer's process: a model folder, and its manners.

vLLM takes a model from a folder, starts a process unless told not to, seeds every generator of the
process it is in, and changes the precision of matrix products. Imports no vLLM.
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Set where the user has set nothing: quiet, on stderr, and no statistics sent to anyone."""
MULTIPROCESSING = "VLLM_ENABLE_V1_MULTIPROCESSING"


@contextlib.contextmanager
def model_folder(
    model: Any,
    weights: Iterable[tuple[str, torch.Tensor]] | None = None,
    *,
    dtype: torch.dtype = torch.float32,
) -> Iterator[Path]:
    """A folder with the architecture of a Hugging Face model and, if given, weights in `dtype`."""
    with tempfile.TemporaryDirectory(prefix="workings-vllm-") as name:
        folder = Path(name)
        settings = model.config.to_dict()
        settings.pop("quantization_config", None)  # vLLM is given whole weights
        config = type(model.config).from_dict(settings)
        config.architectures = [type(model).__name__]
        config.save_pretrained(folder)
        if weights is not None:
            from safetensors.torch import save_file

            held = {name: tensor.to("cpu", dtype).contiguous() for name, tensor in weights}
            save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
        yield folder


@contextlib.contextmanager
def in_this_process() -> Iterator[None]:
    """In a process of its own vLLM could not be handed tensors of this one."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    before = os.environ.get(MULTIPROCESSING)
    os.environ[MULTIPROCESSING] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[MULTIPROCESSING]
        else:
            os.environ[MULTIPROCESSING] = before


@contextlib.contextmanager
def global_state_kept() -> Iterator[None]:
    """The generators of Python, numpy and torch and the precision of products are put back."""
    python, numpy_state = random.getstate(), np.random.get_state()
    precision = torch.get_float32_matmul_precision()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy_state)
            torch.set_float32_matmul_precision(precision)
