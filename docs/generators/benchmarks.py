"""The benchmarks, from their files, as `workings data list` shows them."""

from __future__ import annotations

from generators.blocks import ROOT, Blocks, code, table

from workings.config.dataset import DatasetConfig, SourceConfig
from workings.config.datasets import BENCHMARK_NAMES, SUITES
from workings.config.mmlu import SUBJECTS
from workings.data.benchmarks import shipped_benchmarks

PAGE = ROOT / "docs" / "reference" / "benchmarks.md"


def blocks() -> Blocks:
    """The page's one block."""
    configs = shipped_benchmarks()
    headers = ["benchmark", "problems", "counted as", "answers", "source", "local copies"]
    parts = [
        table(headers, [_row(config) for config in configs]),
        f"`mmlu_SUBJECT` is one of the {len(SUBJECTS)} subjects of `mmlu`. Names for several: "
        + "; ".join(f"`{name}` is {', '.join(members)}" for name, members in SUITES.items())
        + ".",
        "Earlier names: "
        + ", ".join(f"{earlier} ({ours})" for earlier, ours in BENCHMARK_NAMES.items())
        + ".",
        "\n".join(f"- {code(str(one.name))}: {one.note}" for one in configs if one.note),
    ]
    return {PAGE: {"benchmarks": "\n\n".join(parts)}}


def _row(config: DatasetConfig) -> list[str]:
    copies = dict.fromkeys(copy.path for copy in config.local)
    return [
        code(str(config.name)),
        "-" if config.problems is None else f"{config.problems:,}",
        config.counted or "pass@1",
        config.answers or "text",
        ", ".join(_source(one) for one in (config, *config.more)),
        ", ".join(map(code, copies)) or "generated",
    ]


def _source(source: SourceConfig) -> str:
    if "/" not in source.path:
        return "-"
    return f"{source.path} {source.subset or ''}".strip()
