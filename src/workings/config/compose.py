"""From names, files and overrides to one typed run: Hydra composes, the typed models check.

    -c grpo -c mine.yaml  data=gsm8k  optimizer.learning_rate=1e-5
    └── files, left to right ──┘└ group ┘└────── override ──────┘

Precedence: the models' defaults, then the files left to right with the groups that they and the
command line choose, then the overrides. The first file is a whole run, later ones refine it: a
group in the `defaults` of a later file is chosen as the command line would choose it.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    values, notes = _compose(names_or_files, overrides, kind)
    try:
        run = RUN_TYPES[kind].model_validate(values)
    except ValidationError as error:
        raise explain(error, kind) from None
    return Composition(run=run, notes=tuple(notes))


def compose_dict(
    names_or_files: Sequence[str], overrides: Sequence[str] = (), *, kind: str
) -> dict[str, Any]:
    """The composed values before the models fill in defaults and check types."""
    return _compose(names_or_files, overrides, kind)[0]


def _compose(
    names_or_files: Sequence[str], overrides: Sequence[str], kind: str
) -> tuple[Tree, list[str]]:
    if kind not in RUN_TYPES:
        raise ConfigError(unknown_name("kind of run", kind, RUN_TYPES))
    sources = [read_source(name, kind) for name in names_or_files or (kind,)]
    for source in sources:
        _check_kind(source.kind, kind, source.label)
    folders = list(dict.fromkeys([*(s.folder for s in reversed(sources)), shipped_folder()]))
    given = read_overrides(overrides, kind, folders)
    notes = [note for source in sources for note in rename(source.body, kind, source.label)]
    values = _compose_files(sources, _choices(sources, given, folders), folders, kind)
    notes += rename(values, kind, "an included file")
    _check_kind(values.get("kind"), kind, sources[0].label)
    _apply(given, values)
    values = _resolve(values)
    expand_datasets(values, kind, folders)
    notes += _renamed_notes(given.assignments) + _settle(values, given.assignments, kind)
    return values, notes


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
    sources: Sequence[Source],
    choices: Mapping[str, str | list[str] | None],
    folders: Sequence[Path],
    kind: str,
) -> Tree:
    names = {f"file_{index}": source.label for index, source in enumerate(sources)}
    with tempfile.TemporaryDirectory(prefix="workings-") as folder:
        for index, (name, source) in enumerate(zip(names, sources, strict=True)):
            defaults = [d for d in source.defaults if index == 0 or group_of(d) is None]
            _write(Path(folder, f"{name}.yaml"), {"defaults": defaults, **source.body})
        search_path = [f"file://{place}" for place in folders]
        root = {"defaults": [*names, "_self_"], "hydra": {"searchpath": search_path}}
        _write(Path(folder, "run.yaml"), root)
        overrides: list[str] = []
        if choices:
            present = _call_hydra(folder, [], names)["hydra"]["runtime"]["choices"]
            overrides = _group_overrides(choices, present, kind)
        values = _call_hydra(folder, overrides, names)
    del values["hydra"]
    return values


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(yaml_text(content), encoding="utf-8")


def _call_hydra(folder: str, overrides: list[str], names: Mapping[str, str]) -> Tree:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        with _HYDRA, initialize_config_dir(folder, version_base="1.3"):
            composed = hydra_compose("run", overrides, return_hydra_config=True)
        values = OmegaConf.to_container(composed, resolve=False)
    except MissingConfigException as error:
        group, _, choice = str(error.missing_cfg_file).rpartition("/")
        raise ConfigError(
            unknown_name(group or "configuration", choice, error.options or ()),
            hint="it stands in the 'defaults' of a file",
        ) from None
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_with_labels(str(error), names)) from None
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
