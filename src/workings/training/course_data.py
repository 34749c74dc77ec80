"""The course's packed data set and its batches, as torch has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from workings.data.packed import PackedWindows, pack_documents, read_documents
from workings.data.templates import load_template
from workings.data.tokenizer import Tokenizer
from workings.errors import DataError


class PackedDataset(Dataset[dict[str, Tensor]]):
    """Windows of a constant length: item i is {"input_ids", "labels"}, int64 [length] each."""

    def __init__(self, windows: PackedWindows) -> None:
        self._input_ids = torch.from_numpy(windows.input_ids)
        self._labels = torch.from_numpy(windows.labels)

    def __len__(self) -> int:
        return len(self._input_ids)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self._input_ids[index], "labels": self._labels[index]}


def get_packed_sft_dataset(
    tokenizer: Tokenizer,
    dataset_path: str | Path,
    seq_length: int,
    shuffle: bool,
    *,
    seed: int = 0,
    template: str = "alpaca",
) -> PackedDataset:
    """The rows {"prompt", "response"} of a JSONL file, packed to `seq_length` (supplement 4.2).

    `shuffle` orders documents by `seed` before they are packed. `template` is the name of a text
    template or a file. DataError where the documents together do not fill one window.
    """
    documents = read_documents(dataset_path, load_template(template), tokenizer)
    windows = pack_documents(documents, seq_length, shuffle=shuffle, seed=seed)
    if not len(windows.input_ids):
        raise DataError(
            f"{dataset_path} has {sum(map(len, documents))} ids, too few for a window of "
            f"{seq_length} and its labels",
            hint="lower seq_length",
        )
    return PackedDataset(windows)


def iterate_batches(
    dataset: Dataset[Any], batch_size: int, shuffle: bool, *, seed: int = 0
) -> DataLoader[Any]:
    """One epoch of `dataset` in batches; it has a length, and the last batch may be short.

    `shuffle` orders the items by `seed`; going through the result again gives another order.
    """
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(dataset, batch_size=batch_size, shuffle=shuffle, generator=generator)
