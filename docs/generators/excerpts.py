"""Excerpts that must not drift: the six calls of the loop, and the README's own output."""

from __future__ import annotations

import ast

from generators.blocks import ROOT, Blocks

LOOP = ROOT / "src" / "workings" / "training" / "grpo.py"
README = ROOT / "README.md"
OUTPUT_START, OUTPUT_END = "<!-- quickstart-output -->", "<!-- end of quickstart-output -->"


def blocks() -> Blocks:
    """The six calls, and the quickstart's output where the README has it."""
    calls = f"```python\n{six_calls(LOOP.read_text(encoding='utf-8'))}\n```"
    output = quickstart_output(README.read_text(encoding="utf-8"))
    return {
        README: {"six-calls": calls},
        ROOT / "docs" / "concepts" / "one-batch.md": {"six-calls": calls},
        ROOT / "docs" / "guides" / "quickstart.md": {"output": output},
    }


def six_calls(source: str) -> str:
    """The indented lines of the loop's module docstring, with the hop's number as a comment."""
    docstring = ast.get_docstring(ast.parse(source)) or ""
    lines = [line[4:] for line in docstring.splitlines() if line.startswith("    ")]
    return "\n".join(f"{code.rstrip()}  # {note.strip()}" for code, note in map(_cut, lines))


def _cut(line: str) -> tuple[str, str]:
    """The call and its note, which begins at the hop's number."""
    code, _, note = line.partition("   ")
    return code, note


def quickstart_output(readme: str) -> str:
    """What stands between the README's markers of the quickstart's output."""
    return readme.partition(OUTPUT_START)[2].partition(OUTPUT_END)[0].strip()
