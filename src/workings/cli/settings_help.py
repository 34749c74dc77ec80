"""The list of settings under the help of a run's command, made from the typed models."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from workings.config.fields import Setting, settings_of
from workings.config.sources import shipped_names
from workings.config.words import show

_COLUMN = 36


class RunCommand(TyperCommand):
    """A command whose help ends with every setting of its kind of run."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the shipped configurations and the settings below the options."""
        formatter.write(f"\n{describe_settings(self.name or '')}\n")


def describe_settings(kind: str) -> str:
    """Shipped configurations, then one block for each setting: name, type, default, meaning."""
    lines = [
        f"Configurations: {', '.join(shipped_names(kind))}",
        "",
        "Settings, written key=value or --key value:",
    ]
    if kind == "pipeline":
        lines.append("  sft.* and grpo.*: see workings sft --help and workings grpo --help")
    for setting in settings_of(kind).values():
        inside_phase = kind == "pipeline" and "." in setting.path
        if not inside_phase and "*" not in setting.path and setting.path != "kind":
            lines.extend(_lines(setting))
    return "\n".join(lines)


def _lines(setting: Setting) -> list[str]:
    """One line for the setting and one for its meaning; a section shows only where null is one."""
    if setting.section is not None and not setting.is_list:
        if not setting.nullable:
            return []
        return [f"  {setting.path:<{_COLUMN}} null, or a section; default {show(setting.default)}"]
    default = "" if setting.required else f"; default {show(setting.default)}"
    first = f"  {setting.path:<{_COLUMN}} {setting.expected}{default}"
    return [first, *([f"  {'':<{_COLUMN}} {setting.description}"] if setting.description else [])]
