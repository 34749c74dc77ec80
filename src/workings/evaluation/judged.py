"""Responses that a judge decides about, in the files that its programs read.

model_outputs.json     [{instruction, output, generator, dataset}], as AlpacaEval takes it
model_outputs.jsonl    {prompts_final, output} a line, as judges of safety take it

Where questions have several responses, each is a row that also says which one it is: `sample`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workings.tracking.whole_file import write_whole
from workings.types import RolloutGroup

ARRAY_FILE, LINES_FILE = "model_outputs.json", "model_outputs.jsonl"
JUDGEMENT_FILE, JUDGEMENTS_FILE = "judgement.json", "judgements.jsonl"
"""What `workings judge` writes beside them: numbers, and the judge's words."""


def write_judged(
    folder: Path, groups: Sequence[RolloutGroup], *, generator: str, dataset: str
) -> tuple[Path, Path]:
    """The two files with every response to every question, in order.

    `dataset` stands where a row does not say of which part it is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    array: list[dict[str, Any]] = []
    lines: list[str] = []
    for group in groups:
        question = group.problem.question
        of_one = {
            "generator": generator,
            "dataset": str(group.problem.extra.get("dataset") or dataset),
        }
        for sample, rollout in enumerate(group.rollouts):
            which = {"sample": sample} if len(group.rollouts) > 1 else {}
            array.append({"instruction": question, "output": rollout.text, **of_one, **which})
            row = {"prompts_final": question, "output": rollout.text, **which}
            lines.append(json.dumps(row, ensure_ascii=False))
    paths = (folder / ARRAY_FILE, folder / LINES_FILE)
    write_whole(paths[0], json.dumps(array, indent=2, ensure_ascii=False) + "\n")
    write_whole(paths[1], "".join(f"{line}\n" for line in lines))
    return paths
