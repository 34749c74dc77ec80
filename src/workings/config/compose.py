"""From names, files and overrides to one typed run: Hydra composes, the typed models check.

    -c grpo -c mine.yaml  data=gsm8k  optimizer.learning_rate=1e-5
    └── files, left to right ──┘└ group ┘└────── override ──────┘

Precedence: the models' defaults, then the files left to right with the groups that they and the
command line choose, then the overrides. The first file is a whole run, later ones refine it: a
group in the `defaults` of a later file is chosen as the command line would choose it.
"""

from __future__ import annotations

import copy
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

from pydantic import ValidationError

from workings.config.aliases import OLDER
from workings.config.datasets import expand_datasets
from workings.config.dpo import DPOConfig
from workings.config.earlier import rename
from workings.config.evaluation import EvalConfig
from workings.config.expert_iteration import ExpertIterationConfig
from workings.config.grpo import GRPOConfig
from workings.config.keys import PHASES
from workings.config.kinds import RUN_TYPES, AnyRun
from workings.config.older import settle
from workings.config.overrides import Assignment, Overrides, read_overrides
from workings.config.pipeline import PipelineConfig
from workings.config.problems import explain
from workings.config.sample import SampleConfig
from workings.config.serve import ServeConfig
from workings.config.sft import SFTConfig
from workings.config.sources import (
    GROUP_SECTIONS,
    Source,
    check_choice,
    group_of,
    read_source,
    shipped_folder,
)
from workings.config.trees import Tree, holds, look_up, put, take
from workings.config.words import show
from workings.config.yaml_text import yaml_text
from workings.errors import ConfigError, unknown_name

_WHOLE_RUN_TWICE = "give one whole run, by the first -c or in the 'defaults' of that file alone"
_HYDRA = threading.Lock()  # Hydra keeps its state in a process-wide singleton


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """A run, and one line for every earlier name that was read as something of ours."""

    run: AnyRun
    notes: tuple[str, ...]


@overload
def compose(
    names_or_files: Sequence[str], overrides: Sequence[str] = (), *, kind: Literal["sft"]
) -> SFTConfig: ...
@overload
def compose(
    names_or_files: Sequence[str], overrides: Sequence[str] = (), *, kind: Literal["dpo"]
) -> DPOConfig: ...
@overload
def compose(
    names_or_files: Sequence[str], overrides: Sequence[str] = (), *, kind: Literal["grpo"]
) -> GRPOConfig: ...
@overload
def compose(
    names_or_files: Sequence[str],
    overrides: Sequence[str] = (),
    *,
    kind: Literal["expert-iteration"],
) -> ExpertIterationConfig: ...
@overload
def compose(
    names_or_files: Sequence[str], overrides: Sequence[str] = (), *, kind: Literal["pipeline"]
) -> PipelineConfig: ...
@overload
def compose(
    names_or_files: Sequence[str], overrides: Sequence[str] = (), *, kind: Literal["eval"]
) -> EvalConfig: ...
@overload
def compose(
    names_or_files: Sequence[str], overrides: Sequence[str] = (), *, kind: Literal["sample"]
) -> SampleConfig: ...
@overload
def compose(
    names_or_files: Sequence[str], overrides: Sequence[str] = (), *, kind: Literal["serve"]
) -> ServeConfig: ...
@overload
def compose(
    names_or_files: Sequence[str], overrides: Sequence[str] = (), *, kind: str
) -> AnyRun: ...
def compose(names_or_files: Sequence[str], overrides: Sequence[str] = (), *, kind: str) -> AnyRun:
    """The typed run that the files and overrides describe; the shipped default without a file.

    `names_or_files`: names of shipped runs, YAML files, or folders of earlier runs, left to right.
    `overrides`: `key=value` in Hydra's grammar. Every mistake is a ConfigError.
    """
    return compose_with_notes(names_or_files, overrides, kind=kind).run


def compose_with_notes(
    names_or_files: Sequence[str], overrides: Sequence[str] = (), *, kind: str
) -> Composition:
    """As `compose`, with what the earlier names in it were read as."""
    return Composer(names_or_files, kind=kind).compose(overrides)


def compose_dict(
    names_or_files: Sequence[str], overrides: Sequence[str] = (), *, kind: str
) -> dict[str, Any]:
    """The composed values before the models fill in defaults and check types."""
    return Composer(names_or_files, kind=kind).values(overrides)[0]


class Composer:
    """Files that are read once, for any number of runs that differ in their overrides.

    Hydra puts the files together once for each choice of groups, which is most of the time that
    composing takes; overrides of settings are applied to the result.
    """

    def __init__(self, names_or_files: Sequence[str], *, kind: str) -> None:
        if kind not in RUN_TYPES:
            raise ConfigError(unknown_name("kind of run", kind, RUN_TYPES))
        self.kind = kind
        self.names_or_files = tuple(names_or_files)
        self._sources = [read_source(name, kind) for name in self.names_or_files or (kind,)]
        for source in self._sources:
            _check_kind(source.kind, kind, source.label)
        own = (source.folder for source in reversed(self._sources))
        self._folders = list(dict.fromkeys([*own, shipped_folder()]))
        self._notes = [
            note for source in self._sources for note in rename(source.body, kind, source.label)
        ]
        self._composed: dict[str, tuple[Tree, list[str]]] = {}

    def compose(self, overrides: Sequence[str] = ()) -> Composition:
        """The typed run that the files and these overrides describe."""
        values, notes = self.values(overrides)
        try:
            run = RUN_TYPES[self.kind].model_validate(values)
        except ValidationError as error:
            raise explain(error, self.kind) from None
        return Composition(run=run, notes=tuple(notes))

    def values(self, overrides: Sequence[str] = ()) -> tuple[Tree, list[str]]:
        """The values before the models check them, and a line for every earlier name."""
        given = read_overrides(overrides, self.kind, self._folders)
        values, notes = self._files(_choices(self._sources, given, self._folders))
        _apply(given, values)
        values = _resolve(values)
        expand_datasets(values, self.kind, self._folders)
        notes += _renamed_notes(given.assignments)
        notes += _settle(values, given.assignments, self.kind)
        return values, notes

    def _files(self, choices: Mapping[str, str | list[str] | None]) -> tuple[Tree, list[str]]:
        """The files put together with these choices of groups: a copy, for the caller to change."""
        key = repr(choices)
        if key not in self._composed:
            values = self._with_choices(choices)
            notes = self._notes + rename(values, self.kind, "an included file")
            _check_kind(values.get("kind"), self.kind, self._sources[0].label)
            self._composed[key] = values, notes
        return copy.deepcopy(self._composed[key])

    def _with_choices(self, choices: Mapping[str, str | list[str] | None]) -> Tree:
        values = copy.deepcopy(self._as_written)
        if choices:
            present = values["hydra"]["runtime"]["choices"]
            overrides = _group_overrides(choices, present, self.kind)
            values = _compose_files(self._sources, overrides, self._folders)
        del values["hydra"]
        return values

    @cached_property
    def _as_written(self) -> Tree:
        """The files with the groups that they choose themselves, and Hydra's own section."""
        return _compose_files(self._sources, [], self._folders)


def _check_kind(found: Any, kind: str, label: str) -> None:
    if found is not None and found != kind:
        raise ConfigError(
            f"{label!r} describes a run of kind {found!r}, not {kind!r}",
            hint=f"workings {found} -c {label}" if found in RUN_TYPES else None,
        )


# ------------------------------------------------------------------------------------- Hydra


def _choices(
    sources: Sequence[Source], given: Overrides, folders: Sequence[Path]
) -> dict[str, str | list[str] | None]:
    """Group choices of the later files, then of the command line, which wins."""
    chosen: dict[str, str | list[str] | None] = {}
    for source in sources[1:]:
        for group, choice in filter(None, map(group_of, source.defaults)):
            for name in choice if isinstance(choice, list) else [choice]:
                check_choice(group, str(name), folders)
            chosen[group] = choice
    return {**chosen, **given.choices}


def _compose_files(
    sources: Sequence[Source], overrides: Sequence[str], folders: Sequence[Path]
) -> Tree:
    names = {f"file_{index}": source.label for index, source in enumerate(sources)}
    with tempfile.TemporaryDirectory(prefix="workings-") as folder:
        for index, (name, source) in enumerate(zip(names, sources, strict=True)):
            defaults = [d for d in source.defaults if index == 0 or group_of(d) is None]
            _write(Path(folder, f"{name}.yaml"), {"defaults": defaults, **source.body})
        search_path = [f"file://{place}" for place in folders]
        root = {"defaults": [*names, "_self_"], "hydra": {"searchpath": search_path}}
        _write(Path(folder, "run.yaml"), root)
        return _call_hydra(folder, overrides, names)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(yaml_text(content), encoding="utf-8")


def _call_hydra(folder: str, overrides: Sequence[str], names: Mapping[str, str]) -> Tree:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        with _HYDRA, initialize_config_dir(folder, version_base="1.3"):
            composed = hydra_compose("run", list(overrides), return_hydra_config=True)
        values = OmegaConf.to_container(composed, resolve=False)
    except MissingConfigException as error:
        group, _, choice = str(error.missing_cfg_file).rpartition("/")
        raise ConfigError(
            unknown_name(group or "configuration", choice, error.options or ()),
            hint="it stands in the 'defaults' of a file",
        ) from None
    except (HydraException, OmegaConfBaseException) as error:
        message = _with_labels(str(error), names)
        hint = _WHOLE_RUN_TWICE if "appears more than once" in message else None
        raise ConfigError(message, hint=hint) from None
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _with_labels(message: str, names: Mapping[str, str]) -> str:
    for name, label in names.items():
        message = message.replace(name, label)
    return message


def _group_overrides(
    choices: Mapping[str, str | list[str] | None], present: Mapping[str, Any], kind: str
) -> list[str]:
    """Hydra's overrides for the choices: in every place where the group stands, else appended."""
    overrides = []
    for group, choice in choices.items():
        places = [key for key in present if key == group or key.partition("@")[0] == group]
        if choice is None:
            if not places:
                raise ConfigError(f"~{group}: no file chooses one, so there is nothing to remove")
            overrides += [f"~{place}" for place in places]
            continue
        text = f"[{','.join(choice)}]" if isinstance(choice, list) else choice
        overrides += [f"{place}={text}" for place in places or _new_places(group, kind)]
    return overrides


def _new_places(group: str, kind: str) -> list[str]:
    section = GROUP_SECTIONS.get(group, group)
    if "@" in group:
        return [f"+{group}"]
    if kind == "pipeline" and section in RUN_TYPES["sft"].model_fields:
        return [f"+{group}@{phase}.{section}" for phase in PHASES]
    return [f"+{group}" if section == group else f"+{group}@{section}"]


# --------------------------------------------------------------------------------- overrides


def _apply(given: Overrides, values: Tree) -> None:
    for path in given.removals:
        if not holds(values, path):
            raise ConfigError(f"~{path}: no file sets it, so there is nothing to remove")
        take(values, path)
    for assignment in given.assignments:
        before = look_up(values, assignment.path)
        value = assignment.value
        if isinstance(before, dict) and isinstance(value, dict):
            value = {**before, **value}
        put(values, assignment.path, value)


def _resolve(values: Tree) -> Tree:
    from omegaconf import OmegaConf
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

    try:
        resolved = OmegaConf.to_container(
            OmegaConf.create(values), resolve=True, throw_on_missing=True
        )
    except MissingMandatoryValue as error:
        raise ConfigError(f"{error.full_key} is not set: a file leaves it open (???)") from None
    except OmegaConfBaseException as error:
        key = error.full_key or "the configuration"
        raise ConfigError(f"{key}: {str(error).splitlines()[0]}") from None
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}


def _renamed_notes(assignments: Sequence[Assignment]) -> list[str]:
    return [
        f"{new.written} is read as {new.path}={show(new.value)}"
        for new in assignments
        if new.renamed and OLDER not in new.path.split(".")
    ]


def _settle(values: Tree, assignments: Sequence[Assignment], kind: str) -> list[str]:
    """Work out the earlier values in place; a setting that the command line gives itself wins."""
    notes = []
    given = {new.path: new for new in assignments}
    for phase, prefix in [(p, f"{p}.") for p in PHASES] if kind == "pipeline" else [(kind, "")]:
        if not holds(values, f"{prefix}{OLDER}"):
            continue
        older = look_up(values, f"{prefix}{OLDER}")
        inside = look_up(values, prefix.removesuffix("."), {}) if prefix else values
        for settled in settle(older, inside, phase):
            path = f"{prefix}{settled.path}"
            explicit = given.get(path)
            if explicit is not None and not settled.scales and explicit.value != settled.value:
                if not any(f"{prefix}{OLDER}.{name}" in given for name in settled.names):
                    continue  # the older value stands in a file
                raise ConfigError(
                    f"{explicit.written}={show(explicit.value)} disagrees with {settled.source}, "
                    f"which is {path}={show(settled.value)}",
                    hint="give one of them",
                )
            put(values, path, settled.value)
            notes.append(f"{path}={show(settled.value)} ({settled.source})")
        take(values, f"{prefix}{OLDER}")
    return notes
