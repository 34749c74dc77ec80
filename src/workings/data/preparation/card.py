"""The card of a prepared data set: `README.md` for people, `preparation.json` for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

CARD, RECORD, CONTAMINATION = "README.md", "preparation.json", "contamination.json"


def record_text(record: Mapping[str, object]) -> str:
    """The record as JSON; the same record gives the same text."""
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def card_text(record: Mapping[str, Any]) -> str:
    """The card: source, licence, recipe, counts, checksums, command and versions.

    It holds no date and no text of the data, so that the same preparation gives the same bytes.
    """
    source, rows = record["source"], record["rows"]
    parts = [
        _front_matter(record),
        f"# {record['recipe']}\n\n{record['about']}.\n",
        "## Source\n\n"
        + _table(
            ("", ""),
            [
                ("read from", f"`{source['origin']}`"),
                ("published as", f"`{source['published']}`"),
                ("revision", source["revision"] or "local files, see their checksums"),
                ("licence", source["licence"]),
                *([("licence on the hub", source["hub_licence"])] if source["hub_licence"] else []),
                *([("limit", f"the first {source['limit']:,} rows")] if source["limit"] else []),
            ],
        ),
        "## Recipe\n\n"
        + "".join(f"- {step}\n" for step in record["steps"])
        + _settings(record["settings"]),
        "## Rows\n\n" + _table(("rows", "number"), _counts(rows)),
        *_contamination(record.get("contamination")),
        "## Checksums\n\nSHA-256; `sha256sum` prints the same.\n\n"
        + _table(
            ("file", "bytes", "SHA-256"),
            [
                (f"{kind} `{entry['file']}`", f"{entry['bytes']:,}", f"`{entry['sha256']}`")
                for kind, entries in (
                    ("input", record["inputs"]),
                    ("excluded", record.get("excluded", {}).get("inputs", ())),
                    ("output", record["outputs"]),
                )
                for entry in entries
            ],
        ),
        "## Made by\n\n```bash\n"
        + f"{record['command']}\n```\n\n"
        + ", ".join(f"{name} {version}" for name, version in record["versions"].items())
        + ".\n",
    ]
    return "\n".join(parts)


def _front_matter(record: Mapping[str, Any]) -> str:
    """What the hub reads of a data set's card, in JSON's subset of YAML."""
    written, source = record["rows"]["written"], record["source"]
    splits = [{"split": _split_name(name), "path": name} for name in written]
    fields = {
        "pretty_name": record["recipe"],
        **({"license": source["hub_licence"]} if source["hub_licence"] else {}),
        "source_datasets": [source["published"]],
        "configs": [{"config_name": "default", "data_files": splits}],
    }
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in fields.items()]
    return "---\n" + "".join(lines) + "---\n"


def _split_name(file: str) -> str:
    stem = file.rsplit("/", 1)[-1].split(".")[0]
    return stem if stem in ("train", "validation", "test") else "train"


def _settings(settings: Mapping[str, object]) -> str:
    if not settings:
        return ""
    shown = ", ".join(f"{name} {value}" for name, value in settings.items())
    return f"\nSettings: {shown}.\n"


def _counts(rows: Mapping[str, Any]) -> list[tuple[str, str]]:
    table = [("read", f"{rows['read']:,}")]
    for kind in ("written", "dropped", "changed"):
        table += [
            (f"{kind}: {name if kind == 'written' else name.replace('_', ' ')}", f"{count:,}")
            for name, count in rows[kind].items()
        ]
    return table


def _contamination(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return []
    rule = found["asked"]["rule"]
    done = "were left out" if found["asked"]["dropped"] else "are still in the files"
    return [
        "## Contamination\n\n"
        f"{found['rows_overlapping']:,} rows overlap with a question of these benchmarks, and "
        f"{done} (exact text, or {rule['n']} words in a row; `contamination.json`).\n\n"
        "```text\n" + "\n".join(found["table"]) + "\n```\n"
    ]


def _table(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )
