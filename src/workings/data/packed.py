"""Documents packed to a constant length: what the course calls instruction tuning.

Every document is the template filled with prompt and response, encoded by the tokenizer with its
own BOS, and EOS. Documents stand one after the other, and windows are cut from the whole wherever
the length falls, so a window may begin in the middle of a document and see the one before it. All
tokens are trained, prompts too. (Packing in the trainers, `training.packing`, keeps documents
apart.)
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from workings.data.files import Rows, read_file
from workings.data.order import epoch_order
from workings.data.templates import PromptTemplate
from workings.data.tokenizer import Tokenizer
from workings.errors import DataError, TemplateError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWindows:
    """`input_ids` and `labels`, int64 [windows, length]; a label is the id after its input."""

    input_ids: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]


def pack_documents(
    documents: Sequence[Sequence[int]], length: int, *, shuffle: bool = False, seed: int = 0
) -> PackedWindows:
    """Windows of `length` ids, next to each other, and their labels; the short rest is dropped.

    There are (n - 1) // length windows of n ids, for the last label has to exist too. `shuffle`
    puts the documents, not the windows, into the order of `seed`.

    >>> pack_documents([[1, 2, 3], [4, 5, 6, 7, 8]], 4).labels.tolist()
    [[2, 3, 4, 5]]
    """
    import numpy as np  # here, since reading documents alone does without

    if length < 1:
        raise DataError(f"windows of {length} ids; expected a length of at least 1")
    order = epoch_order(len(documents), seed=seed) if shuffle else range(len(documents))
    ids = np.fromiter(
        chain.from_iterable(documents[index] for index in order),
        dtype=np.int64,
        count=sum(map(len, documents)),
    )
    count = max(0, (len(ids) - 1) // length)
    return PackedWindows(
        input_ids=ids[: count * length].reshape(count, length),
        labels=ids[1 : count * length + 1].reshape(count, length),
    )


def encode_document(
    prompt: str, response: str, template: PromptTemplate, tokenizer: Tokenizer
) -> list[int]:
    """Ids of the filled template with the response behind it, and EOS; encoded as one text.

    BOS is there where the tokenizer puts one, and EOS stands once.
    """
    if template.mode != "text":
        raise TemplateError(
            f"template {template.name} has mode {template.mode!r}; a packed document is plain text",
            hint="use a text template such as alpaca",
        )
    if tokenizer.eos_token_id is None:
        raise TemplateError(
            "this tokenizer has no EOS token, so a document would have no end",
            hint="set eos_token in the tokenizer's configuration",
        )
    ids = list(tokenizer.encode(template.before + prompt + template.after + response))
    return ids if ids[-1:] == [tokenizer.eos_token_id] else [*ids, tokenizer.eos_token_id]


def read_documents(
    path: str | Path, template: PromptTemplate, tokenizer: Tokenizer
) -> list[list[int]]:
    """One encoded document for each row {"prompt", "response"} of a JSONL file, also a .gz one.

    DataError for a file without rows and for a row without one of the two texts.
    """
    path = Path(path).expanduser()
    rows = _read_gzip(path) if path.suffix == ".gz" else read_file(path)
    if not rows:
        raise DataError(f"{path} holds no rows")
    documents = []
    for number, row in enumerate(rows):
        texts = (row.get("prompt"), row.get("response"))
        if not isinstance(texts[0], str) or not isinstance(texts[1], str):
            raise DataError(
                f"{path}, row {number}: expected the texts 'prompt' and 'response'; "
                f"it has {', '.join(row) or 'nothing'}"
            )
        documents.append(encode_document(texts[0], texts[1], template, tokenizer))
    return documents


def _read_gzip(path: Path) -> Rows:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines if line.strip()]
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{path} cannot be read as JSONL: {error}") from error
    if not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path}: expected a JSON object on every line")
    return rows
