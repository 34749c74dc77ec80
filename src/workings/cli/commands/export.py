"""`workings export`: a trained checkpoint as something to give away, with its model card."""

from __future__ import annotations

from pathlib import Path

from workings.cli.console import write_data, write_note
from workings.cli.folders import CONFIG, model_card
from workings.cli.saved_models import SavedModel, find_saved_model
from workings.config.compose import compose
from workings.config.sections import Run
from workings.config.sources import kind_of
from workings.errors import ConfigError, ModelError, unknown_name
from workings.models.export import ExportFormat, export_model
from workings.models.lora import ADAPTER_CONFIG, adapter_base

CARD = "README.md"
FORMATS: dict[str, ExportFormat] = {
    "model": "safetensors",
    "merged": "merged",
    "adapter": "adapter",
    "pytorch": "pytorch",
    "safetensors": "safetensors",
}
"""What users write, and the format that it stands for."""


def run(source: Path, destination: Path, *, format: str) -> int:  # noqa: A002 - name of the option
    """Write the model of `source` to `destination`, whose path goes to stdout."""
    if format not in FORMATS:
        raise ConfigError(unknown_name("export format", format, FORMATS))
    folder = source.expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"{folder} is not a folder", hint="give a run's folder, or one of its checkpoints"
        )
    saved = find_saved_model(folder)
    if saved is None:
        raise ModelError(
            f"{folder} holds no model and no whole checkpoint",
            hint="give a run's folder, or one of its checkpoints",
        )
    if saved.folder != folder:
        write_note(f"exporting {saved.folder}, {saved.what}")
    if format in ("adapter", "merged") and not (saved.folder / ADAPTER_CONFIG).is_file():
        raise ConfigError(
            f"{saved.folder} is a full model, so there is no adapter to export as {format!r}",
            hint="use --format model",
        )
    write_data(
        str(
            export_model(
                saved.folder, destination, format=FORMATS[format], card=_card(saved, folder)
            )
        )
    )
    return 0


def _card(saved: SavedModel, source: Path) -> str:
    """The card that the run wrote, else one made from the run's settings, else what is known."""
    if (saved.folder / CARD).is_file():
        return (saved.folder / CARD).read_text(encoding="utf-8")
    for folder in (saved.folder, source, *saved.folder.parents[:2]):
        if (folder / CONFIG).is_file():
            kind = kind_of(str(folder))
            made_by = compose([str(folder)], kind=kind)
            if isinstance(made_by, Run):
                return model_card(made_by, kind=kind, base=made_by.model.name_or_path)
    base = ""
    if (saved.folder / ADAPTER_CONFIG).is_file():
        base = f"base_model: {adapter_base(saved.folder)}\n"
    return (
        f"---\n{base}library_name: transformers\ntags: [workings]\n---\n\n# {saved.folder.name}\n\n"
        f"Exported with Workings from {saved.folder.name}; no settings of a run were found with it."
        "\n"
    )
