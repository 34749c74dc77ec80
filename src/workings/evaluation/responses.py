"""The stored responses of one data set: in parts while they arrive, as one file once all are there.

DATASET/sampling.json                    what they depend on, written before the first of them
DATASET/responses/part_000064.parquet    those to the problems from 64 on; whole or absent
DATASET/responses.parquet                all of them; the parts are gone then

A process that is killed loses the parts that it was sampling and no other. Nothing is graded here,
so that stored responses can be graded again under another reward.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from workings.config.trees import leaves
from workings.errors import DataError
from workings.rollout.engine import Request
from workings.tracking.rollouts import read_groups, write_groups
from workings.types import Prompt, RolloutGroup

RESPONSES_FILE, PLAN_FILE, PARTS_FOLDER = "responses.parquet", "sampling.json", "responses"
_PART = re.compile(r"part_(\d+)\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the responses of a data set depend on, and how they are cut into parts.

    Attributes:
        settings: of the evaluation, in plain JSON.
        problems: digest of the problems' ids, prompts and seeds, in order.
        num_problems: how many there are.
        part_problems: problems in a part; the last one may have fewer.
    """

    settings: Mapping[str, Any]
    problems: str
    num_problems: int
    part_problems: int

    def parts(self) -> list[range]:
        """The problems of every part, by their places."""
        return [
            range(start, min(start + self.part_problems, self.num_problems))
            for start in range(0, self.num_problems, self.part_problems)
        ]


def make_plan(
    prompts: Sequence[Prompt],
    requests: Sequence[Request],
    *,
    settings: Mapping[str, Any],
    part_problems: int,
) -> Plan:
    """The plan of an evaluation; `requests` has one for each prompt, with its seed."""
    digest = hashlib.blake2b(digest_size=16)
    for prompt, request in zip(prompts, requests, strict=True):
        one = [prompt.problem.id, prompt.problem.answer, list(prompt.ids), request.seed]
        digest.update(json.dumps([*one, request.num_samples]).encode())
    return Plan(
        settings=json.loads(json.dumps(dict(settings))),
        problems=digest.hexdigest(),
        num_problems=len(prompts),
        part_problems=part_problems,
    )


class ResponseStore:
    """The files of one data set's responses, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._parts = folder / PARTS_FOLDER
        self._whole = folder / RESPONSES_FILE

    @property
    def complete(self) -> bool:
        """True once every response is in one file."""
        return self._whole.is_file()

    @property
    def begun(self) -> bool:
        """True where there is a response, or a plan to sample some."""
        return self.complete or (self.folder / PLAN_FILE).is_file()

    def plan(self) -> Plan | None:
        """The stored plan; None where there is none. DataError for a damaged file."""
        file = self.folder / PLAN_FILE
        if not file.is_file():
            return None
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            return Plan(**{field.name: values[field.name] for field in fields(Plan)})
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{file} does not hold the plan of an evaluation: {error!r}",
                hint="begin anew with --fresh",
            ) from error

    def begin(self, plan: Plan) -> Plan:
        """`plan`, stored in the place of whatever was here."""
        self.discard()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_plan(plan)
        return plan

    def go_on(self, plan: Plan) -> Plan:
        """The plan to go on with: the stored one's parts under the settings of `plan`.

        DataError where the stored responses are to other problems. That the settings agree is the
        caller's to check (`differing_values`).
        """
        stored = self.plan()
        if stored is None:
            return self.begin(plan)
        if (stored.problems, stored.num_problems) != (plan.problems, plan.num_problems):
            raise DataError(
                f"{self.folder} holds responses to {stored.num_problems} problems (digest "
                f"{stored.problems[:8]}); now there are {plan.num_problems} "
                f"(digest {plan.problems[:8]})",
                hint="the data, the template or the seed has changed; --fresh begins anew",
            )
        merged = replace(plan, part_problems=stored.part_problems)
        if merged != stored:
            self._write_plan(merged)
        return merged

    def missing(self, plan: Plan) -> list[range]:
        """The parts that are still to be sampled, in order."""
        if self.complete:
            return []
        present = {int(match[1]) for path in self._part_files() if (match := _number(path))}
        return [part for part in plan.parts() if part.start not in present]

    def write(self, part: range, groups: Sequence[RolloutGroup]) -> None:
        """Store the responses to the problems of a part."""
        write_groups(self._part_path(part), groups)

    def gather(self, plan: Plan) -> list[RolloutGroup]:
        """All responses, as they are stored, in the order of the problems.

        The parts become one file. DataError where one of them is damaged or missing.
        """
        if not self.complete:
            groups = []
            for part in plan.parts():
                rows = _read(self._part_path(part))
                if len(rows) != len(part):
                    raise DataError(
                        f"{self._part_path(part)} holds responses to {len(rows)} problems; "
                        f"expected {len(part)}",
                        hint="remove it; --resume samples it again",
                    )
                groups += rows
            write_groups(self._whole, groups)
        shutil.rmtree(self._parts, ignore_errors=True)
        return _read(self._whole)

    def discard(self) -> None:
        """Remove the responses and their plan."""
        shutil.rmtree(self._parts, ignore_errors=True)
        for name in (RESPONSES_FILE, PLAN_FILE):
            (self.folder / name).unlink(missing_ok=True)

    def _write_plan(self, plan: Plan) -> None:
        file = self.folder / PLAN_FILE
        beside = file.with_name(file.name + ".new")
        beside.write_text(json.dumps(asdict(plan), indent=2) + "\n", encoding="utf-8")
        beside.replace(file)

    def _part_path(self, part: range) -> Path:
        return self._parts / f"part_{part.start:06d}.parquet"

    def _part_files(self) -> list[Path]:
        return sorted(self._parts.iterdir()) if self._parts.is_dir() else []


def differing_values(
    stored: Mapping[str, Any], wanted: Mapping[str, Any], *, leave_out: Collection[str] = ()
) -> list[str]:
    """One line for every setting that is not as it was: "sampling.max_tokens: 8 stored, 5 now".

    `leave_out` are sections that do not count.

    >>> differing_values({"a": {"b": 1}, "c": 2}, {"a": {"b": 3}}, leave_out=["c"])
    ['a.b: 1 stored, 3 now']
    """
    sides = [
        dict(leaves({key: value for key, value in one.items() if key not in leave_out}))
        for one in (stored, wanted)
    ]
    return [
        f"{name}: {_shown(sides[0], name)} stored, {_shown(sides[1], name)} now"
        for name in dict.fromkeys([*sides[0], *sides[1]])
        if sides[0].get(name) != sides[1].get(name)
    ]


def _shown(side: Mapping[str, Any], name: str) -> str:
    return json.dumps(side[name], ensure_ascii=False) if name in side else "nothing"


def _number(path: Path) -> re.Match[str] | None:
    return _PART.fullmatch(path.name)


def _read(path: Path) -> list[RolloutGroup]:
    try:
        return read_groups(path)
    except DataError as error:
        raise DataError(error.message, hint="remove it; --resume samples it again") from error
