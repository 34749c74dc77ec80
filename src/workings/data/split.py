"""Validation splits and subsets: seeded, and never with one question on both sides."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal, Protocol, TypeVar

from workings.data.order import epoch_order
from workings.errors import DataError


class HasQuestion(Protocol):
    """A problem, a demonstration or a preference pair."""

    @property
    def question(self) -> str: ...


Item = TypeVar("Item")
Asked = TypeVar("Asked", bound=HasQuestion)
SplitName = Literal["train", "validation", "test"]


def train_validation_split(
    items: Sequence[Asked], *, validation_fraction: float, seed: int
) -> tuple[list[Asked], list[Asked]]:
    """`(train, validation)`, each in the order of `items`.

    Rows that share a question go to one side together, so the validation part may exceed the
    fraction by the size of one such group. DataError where a side would be empty.
    """
    if not 0.0 < validation_fraction < 1.0:
        raise DataError(f"validation_fraction={validation_fraction}; expected a value in (0, 1)")
    rows_by_question: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        rows_by_question.setdefault(item.question, []).append(index)
    questions = list(rows_by_question)
    wanted = max(1, round(validation_fraction * len(items)))
    held_out: set[int] = set()
    for position in epoch_order(len(questions), seed=seed):
        if len(held_out) >= wanted:
            break
        held_out.update(rows_by_question[questions[position]])
    if not held_out or len(held_out) == len(items):
        raise DataError(
            f"{len(items)} rows with {len(questions)} distinct questions cannot be split into "
            f"training and validation parts with validation_fraction={validation_fraction}"
        )
    train = [item for index, item in enumerate(items) if index not in held_out]
    validation = [item for index, item in enumerate(items) if index in held_out]
    return train, validation


def take(
    items: Sequence[Item],
    limit: int | None,
    *,
    seed: int,
    order: Literal["shuffled", "first"] = "shuffled",
) -> list[Item]:
    """At most `limit` rows, in the order of `items`: a seeded subset, or the first ones.

    Subsets of one seed are nested: the 128 rows are among the 256. None takes all.
    """
    if limit is None or limit >= len(items):
        return list(items)
    if limit < 1:
        raise DataError(f"limit={limit}; expected 1 or more, or none")
    if order == "first":
        return list(items[:limit])
    return [items[index] for index in sorted(epoch_order(len(items), seed=seed)[:limit])]


def hash_split(text: str) -> SplitName:
    """The split that a generated problem belongs to: 80 % train, 10 % validation, 10 % test.

    The text alone decides, so no problem is in two splits, whatever seeds and counts are asked for.

    >>> hash_split("1+2"), hash_split("1+9"), hash_split("1+20")
    ('test', 'validation', 'train')
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=b"workings").digest()
    share = int.from_bytes(digest, "big") * 10 >> 64
    names: tuple[SplitName, ...] = ("test", "validation")
    return names[share] if share < 2 else "train"
