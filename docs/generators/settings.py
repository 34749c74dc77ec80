"""Every setting, group and earlier name of the configuration, from the typed models."""

from __future__ import annotations

import re

from generators.blocks import ROOT, Blocks, table
from generators.commands import leading_comment

from workings.config.aliases import ALIASES, CONFIG_NAMES, OLDER, REFUSALS, Alias
from workings.config.fields import Setting, settings_of
from workings.config.kinds import RUN_TYPES
from workings.config.objective import PRESETS
from workings.config.section import Section
from workings.config.sources import read_yaml, shipped_folder
from workings.config.words import show

PAGE = ROOT / "docs" / "reference" / "configuration.md"
KINDS = tuple(RUN_TYPES)
NOT_GROUPS = ("quickstart", "templates")


def blocks() -> Blocks:
    """The blocks of the configuration page."""
    return {
        PAGE: {
            "settings": _settings(),
            "groups": _groups(),
            "presets": _presets(),
            "earlier-names": _earlier_names(),
            "refused-names": _refused_names(),
        }
    }


# ----------------------------------------------------------------------------------- settings


def _settings() -> str:
    parts = [_run_part(kind) for kind in KINDS]
    for section, places in _sections().items():
        kind, path = places[0]
        rows = [_row(setting, f"{path}.") for setting in _directly_below(kind, path)]
        where = ", ".join(f"`{path}` ({_kinds(places, path)})" for path in _paths(places))
        doc = " ".join((section.__doc__ or "").split())
        heading = f"### {section_title(section)}"
        parts.append(f"{heading}\n\n{doc} Stands at {where}.\n\n{_table(rows)}")
    return "\n\n".join(parts)


def _run_part(kind: str) -> str:
    rows = [_row(setting, "") for setting in _directly_below(kind, "") if setting.path != "kind"]
    doc = " ".join((RUN_TYPES[kind].__doc__ or "").split())
    return f"### workings {kind}\n\n{doc}\n\n{_table(rows)}"


def section_title(section: type[Section]) -> str:
    """The heading of a section: "GreedySamplingConfig" is "Greedy sampling settings"."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", section.__name__.removesuffix("Config"))
    return f"{words.capitalize()} settings"


def _sections() -> dict[type[Section], list[tuple[str, str]]]:
    """Section class to every (kind, path) where it stands, in the order of the models."""
    found: dict[type[Section], list[tuple[str, str]]] = {}
    for kind in KINDS:
        for setting in settings_of(kind).values():
            inside_a_phase = kind == "pipeline" and setting.path.partition(".")[0] in KINDS
            if setting.section is not None and not inside_a_phase:
                path = f"{setting.path}.*" if setting.is_list else setting.path
                found.setdefault(setting.section, []).append((kind, path))
    return found


def _directly_below(kind: str, path: str) -> list[Setting]:
    prefix = f"{path}." if path else ""
    return [
        setting
        for setting in settings_of(kind).values()
        if setting.path.startswith(prefix) and "." not in setting.path.removeprefix(prefix)
    ]


def _row(setting: Setting, prefix: str) -> list[str]:
    default = "required" if setting.required else f"`{show(setting.default)}`"
    if setting.section is not None:
        link = _link(setting.section)
        expected = f"a list, each {link}" if setting.is_list else link
        expected = f"{expected}, or null" if setting.nullable else expected
        if not setting.required and not setting.nullable:
            default = ""
    else:
        expected = setting.expected
    name = setting.path.removeprefix(prefix)
    return [f"`{name}`", expected, default, setting.description]


def _link(section: type[Section]) -> str:
    for kind, run in RUN_TYPES.items():
        if section is run:
            return f"[workings {kind}](#workings-{kind})"
    title = section_title(section).lower()
    return f"[{title.removesuffix(' settings')}](#{title.replace(' ', '-')})"


def _table(rows: list[list[str]]) -> str:
    return table(["setting", "value", "default", "meaning"], rows)


def _paths(places: list[tuple[str, str]]) -> list[str]:
    return list(dict.fromkeys(path for _, path in places))


def _kinds(places: list[tuple[str, str]], path: str) -> str:
    return ", ".join(kind for kind, other in places if other == path)


# ------------------------------------------------------------------------- groups and presets


def _groups() -> str:
    rows = []
    for folder in sorted(path for path in shipped_folder().iterdir() if path.is_dir()):
        if folder.name in NOT_GROUPS or not list(folder.glob("*.yaml")):
            continue
        for file in sorted(folder.glob("*.yaml")):
            comment = leading_comment(file.read_text(encoding="utf-8"))
            text = comment or _one_line(read_yaml(file))
            rows.append([f"`{folder.name}`", f"`{file.stem}`", text])
    return table(["group", "choice", "what it sets"], rows)


def _one_line(values: dict[str, object]) -> str:
    def flat(value: object) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key}: {flat(inner)}" for key, inner in value.items()) + "}"
        return show(value)

    return "`" + ", ".join(f"{key}: {flat(value)}" for key, value in values.items()) + "`"


def _presets() -> str:
    axes = ("ratio", "surrogate", "reduction", "advantage")
    rows = [
        [
            f"`{name}`",
            *(f"`{preset.values[axis]}`" for axis in axes),
            f"{preset.values.get('epsilon', '-')}",
        ]
        for name, preset in PRESETS.items()
    ]
    return table(["preset", *axes, "epsilon"], rows)


# ------------------------------------------------------------------- names of earlier programs


def _earlier_names() -> str:
    by_meaning: dict[tuple[str, str], dict[str, list[str]]] = {}
    for kind in KINDS:
        for name, alias in ALIASES.get(kind, {}).items():
            names = by_meaning.setdefault((_target(alias), _values(alias)), {})
            names.setdefault(name, []).append(kind)
    rows = []
    for (target, values), names in by_meaning.items():
        groups: dict[tuple[str, ...], list[str]] = {}
        for name, kinds in names.items():
            groups.setdefault(tuple(kinds), []).append(name)
        rows += [
            [", ".join(f"`{name}`" for name in some), target, values, ", ".join(kinds)]
            for kinds, some in groups.items()
        ]
    files = ", ".join(f"`-c {theirs}` is `-c {ours}`" for theirs, ours in CONFIG_NAMES.items())
    listed = table(["earlier name", "is read as", "values", "in"], rows)
    return f"{listed}\n\nNames of configuration files: {files}."


def _target(alias: Alias) -> str:
    if alias.target.startswith(OLDER):
        return "worked out from several settings"
    return f"`{alias.target}`" if alias.target else "by its value"


def _values(alias: Alias) -> str:
    if alias.values is None or alias.target.startswith(OLDER):
        return ""

    def ours(value: object) -> str:
        if value is None:
            return "nothing to set"
        if isinstance(value, tuple):
            return f"{value[0]}={show(value[1])}"
        return show(value)

    return ", ".join(f"`{theirs}`: {ours(value)}" for theirs, value in alias.values.items())


def _refused_names() -> str:
    by_reason: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, refusal in REFUSALS.items():
        by_reason.setdefault((refusal.reason, refusal.harmless), []).append(name)
    rows = [
        [
            ", ".join(f"`{name}`" for name in names),
            reason,
            ", ".join(f"`{value}`" for value in harmless) or "none",
        ]
        for (reason, harmless), names in by_reason.items()
    ]
    return table(["name", "why, and what to do", "accepted without effect"], rows)
