"""The results file of a benchmark: rows, and the conditions under which they were measured."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workings.tracking.environment import environment_report, package_versions

if TYPE_CHECKING:
    import torch

RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]


def name_of(device: torch.device) -> str:
    """What a torch device is called: the name of the card, else its kind."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


ELSEWHERE = ("--commit", "--out", "--output", "--budget", "--record")
"""Options that say where the file goes and when the call ends, not what is measured."""


def command_line(script: str, arguments: Sequence[str]) -> str:
    """The call as one would type it again, without options that change no number.

    >>> command_line("benchmarks/rollout.py", ["--cases", "main", "--out=x.json", "--budget", "9"])
    'python benchmarks/rollout.py --cases main'
    """
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, _ = word.partition("=")
        if name not in ELSEWHERE:
            kept.append(word)
        elif not equals and name != "--record":
            next(words, None)
    return shlex.join(["python", script, *kept])


def document(
    benchmark: str,
    rows: Sequence[Row],
    *,
    command: str,
    commit: str | None = None,
    device: Mapping[str, Any] | None = None,
    packages: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The content of a results file; see benchmarks/report.py for the fields of a row.

    Args:
        commit: to record where there is no repository.
        device: name and memory of the card, where one was used.
        packages: distributions to record besides those that every environment report names.
    """
    environment = environment_report()
    machine = {key: environment[key] for key in ("processor", "num_usable_cpus", "memory_gb")}
    content = {
        "benchmark": benchmark,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit or (environment["git"] or {}).get("commit"),
        "command": command,
        "machine": {**(device or {}), **machine},
        "versions": {
            "python": environment["python"],
            **environment["packages"],
            **package_versions(packages),
        },
        "results": list(rows),
    }
    return content | ({"notes": list(notes)} if notes else {})


def write(path: Path, content: Mapping[str, Any], *, replaced: Collection[str] = ()) -> None:
    """The file at `path`, in which rows that an earlier call measured stay, less those `replaced`.

    ValueError where these came from another machine or other versions: one file has one of each.
    """
    merged = dict(content)
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        for key in ("machine", "versions"):
            if before[key] != merged[key]:
                raise ValueError(
                    f"{path} was measured with {key} {before[key]}, this was with {merged[key]}; "
                    "write to another file"
                )
        names = {row["name"] for row in merged["results"]} | set(replaced)
        kept = [row for row in before["results"] if row["name"] not in names]
        merged["results"] = [*kept, *merged["results"]]
        notes = dict.fromkeys([*before.get("notes", []), *merged.get("notes", [])])
        merged |= {"notes": list(notes)} if notes else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(merged, indent=2) + "\n", encoding="utf-8")
