"""Tensors and plain values on disk, in files that cannot run code when they are loaded."""

from __future__ import annotations

import pickle
import warnings
from collections import OrderedDict
from pathlib import Path

import torch

from workings.errors import CheckpointError

PLAIN = (str, int, float, bool, bytes, type(None), torch.dtype, torch.device, torch.Size)
CONTAINERS = (dict, OrderedDict, list, tuple)


def save_tensors(path: Path, obj: object) -> None:
    """Writes tensors nested in dictionaries, lists and tuples of plain values.

    Raises CheckpointError, naming the place, for anything else: it could not be loaded with
    `weights_only=True`.
    """
    _check_plain(obj, "")
    torch.save(obj, path)


def load_tensors(path: Path, *, mmap: bool = False) -> object:
    """What `save_tensors` wrote, in CPU memory.

    `mmap` reads a tensor from the file when it is looked at, for tensors that are copied somewhere
    else at once: then the file is never in memory as a whole.

    Raises CheckpointError for a damaged file or another pickle.
    """
    if not path.is_file():
        raise CheckpointError(f"there is no file {path}")
    try:
        with warnings.catch_warnings():
            # Said in full when the pickle is refused.
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            loaded: object = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} is a pickle that holds more than tensors and plain values; refused, because "
            "loading it could run code",
            hint="only files written by this package, or plain tensor files, are loaded",
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    return loaded


def _check_plain(obj: object, where: str) -> None:
    # Exact types: a subclass (an enum, a named tuple) is pickled by its class and then refused.
    if type(obj) in CONTAINERS and isinstance(obj, dict):
        for key, value in obj.items():
            if type(key) not in (str, int):
                raise CheckpointError(
                    f"the key {key!r} at {where or 'the top'} is a {type(key).__name__}; "
                    "expected str or int"
                )
            _check_plain(value, f"{where}[{key!r}]")
    elif type(obj) in CONTAINERS and isinstance(obj, (list, tuple)):
        for index, value in enumerate(obj):
            _check_plain(value, f"{where}[{index}]")
    elif not isinstance(obj, torch.Tensor) and type(obj) not in PLAIN:
        raise CheckpointError(
            f"a {type(obj).__name__} at {where or 'the top'} cannot be saved as tensors and plain "
            "values",
            hint="turn it into a tensor, a list or a number first (a numpy array: .tolist())",
        )
