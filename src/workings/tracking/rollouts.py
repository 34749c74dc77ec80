"""Rollouts as parquet, one row per completion: `rollouts/step_000012.parquet`.

The columns are made for people and for other tools (question, completion, reward, verdict, ...),
and they are complete: `read_groups` gives the groups back as they were, so that stored responses
can be graded again without sampling again.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workings.errors import DataError
from workings.tracking.json_values import json_value
from workings.types import Grade, Problem, Prompt, Rollout, RolloutGroup, Verdict

if TYPE_CHECKING:
    import pyarrow as pa

_STEP_NAME = re.compile(r"step_(\d+)(?:\.parquet)?")


def rollouts_path(folder: Path, step: int) -> Path:
    """The file of one step.

    >>> rollouts_path(Path("rollouts"), 12).as_posix()
    'rollouts/step_000012.parquet'
    """
    return folder / f"step_{step:06d}.parquet"


def write_rollouts(
    folder: Path,
    step: int,
    groups: Sequence[RolloutGroup],
    *,
    advantages: Sequence[Sequence[float]] | None = None,
) -> Path:
    """The file of `step`, written to the side and renamed; `advantages` is [groups][samples]."""
    path = rollouts_path(folder, step)
    write_groups(path, groups, step=step, advantages=advantages)
    return path


def write_groups(
    path: Path,
    groups: Sequence[RolloutGroup],
    *,
    step: int = 0,
    advantages: Sequence[Sequence[float]] | None = None,
) -> None:
    """Write groups to one parquet file, in order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if advantages is not None:
        sizes = [len(group.rollouts) for group in groups]
        if [len(row) for row in advantages] != sizes:
            raise DataError(
                f"advantages of shape {[len(row) for row in advantages]} for groups of {sizes} "
                "rollouts; expected one advantage per rollout"
            )
    rows = [
        _row(step, index, sample, group, rollout, None if advantages is None else advantages[index])
        for index, group in enumerate(groups)
        for sample, rollout in enumerate(group.rollouts)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    pq.write_table(pa.Table.from_pylist(rows, schema=_schema()), beside, compression="zstd")
    beside.replace(path)


def read_rows(path: Path, *, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The stored rows as dictionaries, in order; `components` is a dictionary again.

    DataError where there is no such file, or it cannot be read as one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise DataError(
            f"no rollouts at {path}", hint="set tracking.save_rollouts_every=1 to store them"
        )
    wanted = None if columns is None else list(columns)
    try:
        rows: list[dict[str, Any]] = pq.read_table(path, columns=wanted).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    for row in rows:
        if "components" in row:
            row["components"] = dict(row["components"])
    return rows


def read_groups(path: Path) -> list[RolloutGroup]:
    """The groups that `write_groups` stored; equal to them where `Problem.extra` is plain JSON."""
    groups: list[RolloutGroup] = []
    rollouts: list[Rollout] = []
    rows = read_rows(path)
    for position, row in enumerate(rows):
        try:
            rollouts.append(_rollout(row))
            last = position + 1 == len(rows) or rows[position + 1]["group"] != row["group"]
            if last:
                groups.append(RolloutGroup(prompt=_prompt(row), rollouts=tuple(rollouts)))
                rollouts = []
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path} row {position + 1} is no rollout: {type(error).__name__} {error}",
                hint="write_rollouts makes such files",
            ) from error
    return groups


def prune_steps(folder: Path, *, after_step: int) -> list[Path]:
    """The files and folders named `step_N` with N > `after_step`, which are removed."""
    if not folder.is_dir():
        return []
    removed = []
    for path in sorted(folder.iterdir()):
        match = _STEP_NAME.fullmatch(path.name)
        if match is None or int(match.group(1)) <= after_step:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        removed.append(path)
    return removed


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path} cannot be read: {error}", hint="it is no parquet file, or was cut; remove it"
    )


def _schema() -> pa.Schema:
    import pyarrow as pa

    text, number, integer = pa.string(), pa.float64(), pa.int32()
    return pa.schema(
        [
            ("step", pa.int64()),
            ("group", integer),
            ("sample", integer),
            ("problem_id", text),
            ("source", text),
            ("subject", text),
            ("level", text),
            ("question", text),
            ("answer", text),
            ("prompt", text),
            ("completion", text),
            ("reward", number),
            ("components", pa.map_(text, number)),
            ("advantage", number),
            ("verdict", text),
            ("tier", text),
            ("extracted", text),
            ("grading_milliseconds", number),
            ("finish_reason", text),
            ("num_tokens", integer),
            ("weight_version", pa.int64()),
            ("rollout_source", text),
            ("prompt_ids", pa.list_(integer)),
            ("ids", pa.list_(integer)),
            ("sampling_logprobs", pa.list_(pa.float32())),
            ("kept_mass", pa.list_(number)),
            ("mask", pa.list_(pa.bool_())),
            ("off_policy", pa.list_(pa.bool_())),
            ("messages", text),
            ("extra", text),
        ]
    )


def _row(
    step: int,
    group_index: int,
    sample: int,
    group: RolloutGroup,
    rollout: Rollout,
    advantages: Sequence[float] | None,
) -> dict[str, Any]:
    problem, grade = group.problem, rollout.grade
    extracted = None if grade is None else grade.extracted
    return {
        "step": step,
        "group": group_index,
        "sample": sample,
        "problem_id": problem.id,
        "source": problem.source,
        "subject": problem.subject,
        "level": problem.level,
        "question": _unicode(problem.question),
        "answer": _unicode(problem.answer),
        "prompt": _unicode(group.prompt.text),
        "completion": _unicode(rollout.text),
        "reward": rollout.reward,
        "components": list(rollout.components.items()),
        "advantage": None if advantages is None else float(advantages[sample]),
        "verdict": None if grade is None else grade.verdict.value,
        "tier": None if grade is None else grade.tier,
        "extracted": None if extracted is None else _unicode(extracted),
        "grading_milliseconds": None if grade is None else grade.milliseconds,
        "finish_reason": rollout.finish_reason,
        "num_tokens": len(rollout.ids),
        "weight_version": rollout.weight_version,
        "rollout_source": rollout.source,
        "prompt_ids": list(group.prompt.ids),
        "ids": list(rollout.ids),
        "sampling_logprobs": list(rollout.sampling_logprobs),
        "kept_mass": list(rollout.kept_mass),
        "mask": list(rollout.mask),
        "off_policy": list(rollout.off_policy),
        "messages": _json(problem.messages),
        "extra": _json(problem.extra),
    }


def _rollout(row: dict[str, Any]) -> Rollout:
    grade = None
    if row["verdict"] is not None:
        grade = Grade(
            verdict=Verdict(row["verdict"]),
            tier=row["tier"],
            extracted=row["extracted"],
            milliseconds=row["grading_milliseconds"],
        )
    return Rollout(
        ids=tuple(row["ids"]),
        sampling_logprobs=tuple(row["sampling_logprobs"]),
        kept_mass=tuple(row["kept_mass"]),
        mask=tuple(row["mask"]),
        off_policy=tuple(row["off_policy"]),
        text=row["completion"],
        finish_reason=row["finish_reason"],
        weight_version=row["weight_version"],
        source=row["rollout_source"],
        reward=row["reward"],
        components=row["components"],
        grade=grade,
    )


def _prompt(row: dict[str, Any]) -> Prompt:
    problem = Problem(
        id=row["problem_id"],
        question=row["question"],
        answer=row["answer"],
        messages=tuple(json.loads(row["messages"])),
        subject=row["subject"],
        level=row["level"],
        source=row["source"],
        extra=json.loads(row["extra"]),
    )
    return Prompt(problem=problem, ids=tuple(row["prompt_ids"]), text=row["prompt"])


def _unicode(text: str) -> str:
    # A lone surrogate (half an emoji cut by a tokenizer) cannot be written as UTF-8.
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _json(value: Iterable[Any]) -> str:
    plain = json_value(dict(value) if hasattr(value, "items") else list(value))
    return json.dumps(plain, ensure_ascii=True, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """Array columns of a parquet file as lists; anything else that JSON lacks as its text."""
    return json_value(value.tolist()) if hasattr(value, "tolist") else str(value)
