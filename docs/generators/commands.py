"""Every command with its arguments and options, from the command line itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from generators.blocks import ROOT, Blocks, table
from typer.main import get_command

from workings.cli.main import app
from workings.config.kinds import RUN_TYPES
from workings.config.sources import read_yaml, shipped_folder, shipped_names

PAGE = ROOT / "docs" / "reference" / "commands.md"


def blocks() -> Blocks:
    """The commands, and the runs that come with the package."""
    parts = [_section(name, command) for name, command in every_command()]
    return {PAGE: {"commands": "\n\n".join(parts), "runs": _runs()}}


def every_command() -> Iterator[tuple[str, Any]]:
    """(full name, command) of every command that does something, e.g. "inspect data"."""
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
        else:
            yield from ((f"{name} {below}", one) for below, one in inner.items())


def _section(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    takes_settings = command.context_settings.get("allow_extra_args", False)
    usage = ["workings", name, *map(_argument, arguments), *(["[OPTIONS]"] if options else [])]
    usage += ["[key=value ...]"] if takes_settings else []
    rows = [[f"`{_argument(p)}`", p.help or ""] for p in arguments]
    rows += [[f"`{_option(p)}`", p.help or ""] for p in options]
    text = f"### workings {name}\n\n{_prose(command.help)}\n\n```text\n{' '.join(usage)}\n```"
    return f"{text}\n\n{table(['argument', 'meaning'], rows)}" if rows else text


def _argument(parameter: Any) -> str:
    name = parameter.name.upper() + (" ..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _option(parameter: Any) -> str:
    names = ", ".join(parameter.opts)
    if parameter.is_flag:
        return names
    value = parameter.metavar or parameter.name.upper()
    default = "" if parameter.default in (None, "") else f" (default {parameter.default})"
    return f"{names} {value}{default}"


def _prose(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _runs() -> str:
    rows = []
    for kind in RUN_TYPES:
        for name in shipped_names(kind):
            file = shipped_folder() / f"{name}.yaml"
            if not (file.is_file() and read_yaml(file).get("kind") == kind):
                file = shipped_folder() / name / f"{kind}.yaml"
            rows.append([f"`workings {kind} -c {name}`", leading_comment(file.read_text())])
    return table(["run", "what it does"], rows)


def leading_comment(text: str) -> str:
    """The comment that begins a YAML file, as one paragraph.

    >>> leading_comment("# One.\\n# Two.\\nkey: 1\\n")
    'One. Two.'
    """
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(lines)
