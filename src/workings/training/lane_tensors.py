"""The tensors of a microbatch, from the lanes that its rows lie in.

They are put together on the CPU, in arrays, and sent to the device without waiting for it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from workings.training.attention import Documents
from workings.training.lanes import Lane

if TYPE_CHECKING:
    from workings.training.packing import TrainRow

Array = npt.NDArray[Any]
Apart = Literal["lanes", "mask", "documents"]
"""What keeps rows apart: a lane each, with its padding on the right; a mask; or boundaries of
documents in a single lane."""


def lane_tensors(
    lanes: Sequence[Lane],
    *,
    apart: Apart,
    pad_id: int,
    padding_side: Literal["left", "right"],
    device: torch.device | str,
) -> dict[str, Any]:
    """The fields of a `MicroBatch` that its rows decide."""
    rows = [row for lane in lanes for unit in lane.units for row in unit.rows]
    shape = (len(lanes), max(lane.length for lane in lanes))
    ids = np.full(shape, pad_id, dtype=np.int64)
    positions = np.zeros(shape, dtype=np.int64)
    if apart == "lanes":
        positions[:] = np.arange(shape[1])
    unit_of, branch_of = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    sources = np.zeros((len(rows), max(len(row.response_ids) for row in rows)), dtype=np.int64)
    line = 0
    for number, lane in enumerate(lanes):
        padding = shape[1] - lane.length if padding_side == "left" else 0
        places = _places(lane, padding, prompts_first=apart == "documents" and is_shared(lane))
        for index, (unit, (prompt_at, responses_at)) in enumerate(
            zip(lane.units, places, strict=True), start=1
        ):
            prompt = slice(prompt_at, prompt_at + unit.prompt_length)
            ids[number, prompt] = unit.rows[0].prompt_ids
            positions[number, prompt] = np.arange(unit.prompt_length)
            unit_of[number, prompt] = index
            for branch, (row, at) in enumerate(zip(unit.rows, responses_at, strict=True), start=1):
                length = len(row.response_ids)
                response = slice(at, at + length)
                ids[number, response] = row.response_ids
                positions[number, response] = unit.prompt_length + np.arange(length)
                unit_of[number, response] = index
                branch_of[number, response] = branch
                sources[line, 0] = number * shape[1] + prompt.stop - 1
                sources[line, 1:length] = number * shape[1] + np.arange(at, at + length - 1)
                line += 1
    tables = _response_tables(rows, sources.shape)
    sent = {
        "input_ids": ids,
        "position_ids": positions,
        "sources": sources,
        **tables,
        "trained": np.flatnonzero(tables["mask"]),
        "group_tokens": np.array([row.group_tokens for row in rows], dtype=np.int64),
    }
    mask = documents = None
    if apart == "mask":
        mask = _attention_mask(_sent(unit_of, device), _sent(branch_of, device))
    elif apart == "documents":
        documents = _documents(lanes[0], device)
    return {
        **{name: _sent(array, device) for name, array in sent.items()},
        "attention_mask": mask,
        "documents": documents,
        "keys": tuple(row.key for row in rows),
    }


def is_shared(lane: Lane) -> bool:
    """True where a prompt of the lane has several responses."""
    return any(len(unit.rows) > 1 for unit in lane.units)


def _places(lane: Lane, start: int, *, prompts_first: bool) -> list[tuple[int, list[int]]]:
    """Where in a lane the prompt of each unit begins, and each of its responses."""
    lengths = [unit.prompt_length for unit in lane.units]
    cursor = start + sum(lengths) if prompts_first else start
    prompts = itertools.accumulate(lengths, initial=start)
    places = []
    for unit, first in zip(lane.units, prompts, strict=False):
        prompt_at = first if prompts_first else cursor
        cursor += 0 if prompts_first else unit.prompt_length
        responses_at = []
        for row in unit.rows:
            responses_at.append(cursor)
            cursor += len(row.response_ids)
        places.append((prompt_at, responses_at))
    return places


def _documents(lane: Lane, device: torch.device | str) -> Documents:
    """Boundaries of the rows of a lane, or of its prompts and then of their answers."""
    if not is_shared(lane):
        lengths = [unit.length for unit in lane.units]
        sizes = torch.tensor([max(lengths), 0, 0, 0])
        return Documents(pieces=_bounds(lengths, device), sizes=sizes)
    prompts = [unit.prompt_length for unit in lane.units]
    answers = [len(row.response_ids) for unit in lane.units for row in unit.rows]
    stretches = [unit.length - unit.prompt_length for unit in lane.units]
    return Documents(
        pieces=_bounds([*prompts, *answers], device),
        sizes=torch.tensor([max(*prompts, *answers), max(prompts), max(stretches), sum(prompts)]),
        prompts=_bounds(prompts, device),
        answers=_bounds(stretches, device),
    )


def _bounds(lengths: Iterable[int], device: torch.device | str) -> Tensor:
    return _sent(np.fromiter(itertools.accumulate(lengths, initial=0), dtype=np.int32), device)


def _response_tables(rows: Sequence[TrainRow], shape: tuple[int, ...]) -> dict[str, Array]:
    """[B, T] of what rows hold for each response token; what a row does not hold is filled in."""

    def table(values: Iterable[Sequence[float]], fill: float, dtype: type) -> Array:
        lines: Array = np.full(shape, fill, dtype=dtype)
        for line, value in zip(lines, values, strict=True):
            line[: len(value)] = value
        return lines

    return {
        "targets": table((row.response_ids for row in rows), 0, np.int64),
        "mask": table((row.mask for row in rows), False, np.bool_),
        "advantages": _advantages(rows, table),
        "sampling_logprobs": table((r.sampling_logprobs for r in rows), math.nan, np.float32),
        "kept_mass": table((row.kept_mass for row in rows), 1.0, np.float32),
        "off_policy": table((row.off_policy for row in rows), False, np.bool_),
        "recorded_logprobs": table((r.recorded_logprobs for r in rows), math.nan, np.float32),
    }


def _advantages(rows: Sequence[TrainRow], table: Any) -> Array:
    """[B, 1], or [B, T] where a row has one for each token."""
    if not any(isinstance(row.advantage, Sequence) for row in rows):
        return np.array([[row.advantage] for row in rows], dtype=np.float32)
    by_token = (
        row.advantage
        if isinstance(row.advantage, Sequence)
        else [row.advantage] * len(row.response_ids)
        for row in rows
    )
    wanted: Array = table(by_token, 0.0, np.float32)
    return wanted


def _sent(array: Array, device: torch.device | str) -> Tensor:
    """The array on the device; a copy from pinned memory does not wait for the device's work."""
    tensor = torch.from_numpy(array)
    if torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def _attention_mask(units: Tensor, branches: Tensor) -> Tensor:
    """[L, 1, W, W] bool: causal, within one unit, to the prompt (branch 0) and the own branch.

    Padding is unit 0 and attends to padding, so that no line of the mask is empty (an empty line
    would give NaN in a softmax).
    """
    width = units.shape[1]
    causal = torch.ones(width, width, dtype=torch.bool, device=units.device).tril()
    same_unit = units[:, :, None] == units[:, None, :]
    visible = (branches[:, None, :] == 0) | (branches[:, :, None] == branches[:, None, :])
    return (causal & same_unit & visible)[:, None]
