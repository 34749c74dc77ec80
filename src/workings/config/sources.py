"""Where a configuration comes from: a shipped name, a YAML file or a run's folder, read as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from workings.config.aliases import CONFIG_NAMES
from workings.config.kinds import RUN_TYPES
from workings.config.trees import Tree
from workings.errors import ConfigError, unknown_name

ENDINGS = (".yaml", ".yml")
RESOLVED_NAME = "config.yaml"  # a run's folder holds its resolved configuration under this name

# Where a group's choice goes, if not to the section of the group's own name.
GROUP_SECTIONS = {"tracker": "tracking"}
# What to set when a value is meant that is no choice of the group.
GROUP_FIELDS = {
    "model": "model.name_or_path",
    "data": "data.train.path",
    "engine": "engine.name",
    "reward": "reward.name",
    "objective": "objective.preset",
}
BENCHMARKS = "benchmark"  # a group of data sets, chosen by name in `datasets`, not composed


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One `-c`: what it was called, the folder whose groups it may use, and its two parts.

    `defaults` is the file's defaults list as written, `body` everything else, nothing resolved.
    """

    label: str
    folder: Path
    defaults: tuple[Any, ...]
    body: Tree

    @property
    def kind(self) -> str | None:
        """The kind of run that the file says it is."""
        kind = self.body.get("kind")
        return kind if isinstance(kind, str) else None


def shipped_folder() -> Path:
    """The folder `workings/conf`."""
    return Path(str(files("workings.conf")))


def read_source(name_or_file: str, kind: str) -> Source:
    """What `-c NAME_OR_FILE` stands for in a run of this kind."""
    path = _locate(name_or_file, kind)
    content = read_yaml(path)
    if "hydra" in content:
        raise ConfigError(
            f"{path}: the section 'hydra' has no effect here",
            hint="remove it; output_dir and name say where a run is written",
        )
    defaults = content.pop("defaults", [])
    if not isinstance(defaults, list):
        raise ConfigError(f"{path}: 'defaults' is {defaults!r}; expected a list such as [model: x]")
    folder = _group_folder(path)
    return Source(
        label=name_or_file,
        folder=folder,
        defaults=tuple(_with_place(entry, (folder, shipped_folder())) for entry in defaults),
        body=content,
    )


def _group_folder(path: Path) -> Path:
    shipped = shipped_folder()
    return shipped if shipped in path.parents else path.resolve().parent


def _locate(name_or_file: str, kind: str) -> Path:
    shipped = shipped_folder()
    name = CONFIG_NAMES.get(name_or_file, name_or_file)
    if name and (shipped / f"{name}.yaml").is_file():
        return shipped / f"{name}.yaml"
    if name and _says_kind(shipped / name / f"{kind}.yaml", kind):
        return shipped / name / f"{kind}.yaml"
    path = Path(name_or_file).expanduser()
    if path.is_dir() and (path / RESOLVED_NAME).is_file():
        return path / RESOLVED_NAME
    if path.is_file():
        if path.suffix not in ENDINGS:
            raise ConfigError(f"{path} is not a configuration; expected a .yaml file")
        return path
    if path.suffix in ENDINGS or "/" in name_or_file:
        raise ConfigError(f"configuration file {path} does not exist", hint=_near_file(path))
    local = path.with_name(f"{path.name}.yaml") if path.name else path
    raise ConfigError(
        unknown_name(f"{kind} configuration", name_or_file, shipped_names(kind)),
        hint=f"for the file, write -c {local}"
        if local.is_file()
        else "a file of your own is given with its ending, e.g. -c my_run.yaml",
    )


def _near_file(path: Path) -> str:
    names = [entry.name for entry in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
    if names:
        return f"the folder {path.parent} has {', '.join(sorted(names))}"
    return f"there is no configuration file in {path.parent}"


def kind_of(name_or_file: str) -> str:
    """The kind of run that a configuration is of; a shipped name may stand for several kinds."""
    if name_or_file in RUN_TYPES:
        return name_or_file
    for kind in RUN_TYPES:
        if name_or_file in shipped_names(kind):
            return kind
    found = read_source(name_or_file, "grpo").kind
    if found not in RUN_TYPES:
        raise ConfigError(
            f"{name_or_file} does not say which kind of run it is",
            hint=f"add a line such as kind: grpo (known: {', '.join(RUN_TYPES)})",
        )
    return found


def shipped_names(kind: str) -> list[str]:
    """Names of the shipped runs of one kind."""
    shipped = shipped_folder()
    names = [path.stem for path in shipped.glob("*.yaml") if _says_kind(path, kind)]
    folders = [path for path in shipped.glob(f"*/{kind}.yaml") if _says_kind(path, kind)]
    return sorted(names + [path.parent.name for path in folders])


def _says_kind(path: Path, kind: str) -> bool:
    """True for an existing run of this kind; a group's file says no kind."""
    return path.is_file() and f"\nkind: {kind}\n" in path.read_text(encoding="utf-8")


def read_yaml(path: Path) -> Tree:
    """The mapping in a YAML file, interpolations left as they stand."""
    from omegaconf import OmegaConf
    from yaml import YAMLError

    try:
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds {content!r:.60}; expected keys with values")
    return {str(key): value for key, value in content.items()}


# ------------------------------------------------------------------------------------- groups


def _with_place(entry: Any, folders: Sequence[Path]) -> Any:
    """A defaults entry with its place written out.

    `tracker: x` goes to `tracking`; a run that lies in a folder (`quickstart/grpo`) goes to the
    top, where Hydra would take the folder for the name of a section.
    """
    if isinstance(entry, str):
        file = Path(f"{entry.removeprefix('/')}.yaml")
        is_run = "@" not in entry and any(_is_run(folder / file) for folder in folders)
        return f"{entry}@_global_" if is_run and file.parent != Path() else entry
    if not isinstance(entry, Mapping) or len(entry) != 1:
        return entry
    (key, choice), *_ = entry.items()
    *words, group = str(key).split()
    section = GROUP_SECTIONS.get(group.removeprefix("/"))
    return {" ".join([*words, f"{group}@{section}"]): choice} if section else entry


def _is_run(path: Path) -> bool:
    return any(_says_kind(path, kind) for kind in RUN_TYPES)


def group_of(entry: Any) -> tuple[str, Any] | None:
    """(group, choice) of a defaults entry; None for a plain configuration or `_self_`.

    >>> group_of({"override /model": "smollm2"}), group_of("_self_")
    (('model', 'smollm2'), None)
    """
    if not isinstance(entry, Mapping) or len(entry) != 1:
        return None
    (key, choice), *_ = entry.items()
    return str(key).split()[-1].removeprefix("/").partition("@")[0], choice


def choices_of(group: str, folders: Sequence[Path]) -> list[str]:
    """Names of the files of a group, over all folders."""
    found = {path.stem for folder in folders for path in (folder / group).glob("*.yaml")}
    return sorted(found)


def is_group(key: str, folders: Sequence[Path]) -> bool:
    """True where a folder has files of this group."""
    return bool(key) and key not in RUN_TYPES and bool(choices_of(key, folders))


def check_choice(group: str, choice: str, folders: Sequence[Path]) -> None:
    """Raise ConfigError for a choice that no file stands for."""
    known = choices_of(group, folders)
    if choice in known:
        return
    field = GROUP_FIELDS.get(group)
    raise ConfigError(
        unknown_name(group, choice, known),
        hint=f"anything else is set as {field}={choice}" if field else None,
    )
