"""Rewrite the generated parts of the documentation, or check that they are up to date.

    python docs/generate.py [--check]

What is generated comes from the package itself (names, settings, commands, scores) and from its
tests. Measured numbers are written by benchmarks/report.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from generators import (
    benchmarks,
    commands,
    excerpts,
    faults,
    objectives,
    public_names,
    scores,
    settings,
    templates,
)
from generators.blocks import Blocks, write_or_check

GENERATORS: Mapping[str, Callable[[], Blocks]] = {
    "public names": public_names.blocks,
    "commands": commands.blocks,
    "settings": settings.blocks,
    "scores": scores.blocks,
    "objectives": objectives.blocks,
    "templates": templates.blocks,
    "benchmarks": benchmarks.blocks,
    "faults": faults.blocks,
    "excerpts": excerpts.blocks,
}


def every_block() -> Blocks:
    """The blocks of all generators; two may write into one page."""
    pages: dict = {}
    for generate in GENERATORS.values():
        for page, contents in generate().items():
            pages.setdefault(page, {}).update(contents)
    return pages


def main(arguments: list[str]) -> int:
    """The exit code: 0, or 1 where `--check` found a page that is not up to date."""
    return write_or_check(every_block(), arguments, command="python docs/generate.py")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
