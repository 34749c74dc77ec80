"""A policy on disk in the Hugging Face layout: the full model, or the adapter alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workings.errors import ModelError
from workings.models.lora import save_adapter
from workings.models.quiet import quiet_transformers
from workings.models.weights import has_adapter


def save_policy(model: Any, tokenizer: Any, folder: Path, *, trained: bool) -> None:
    """Writes the model (LoRA: the adapter alone), the tokenizer and `chat_template.jinja`.

    The folder loads with `load_model` and with plain transformers or peft. Call it inside
    `write_checkpoint`, which makes it atomic.

    Args:
        trained: True once an optimizer step was taken; see `save_adapter`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if has_adapter(model):
        save_adapter(model, folder, trained=trained)
    else:
        with quiet_transformers():
            model.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Writes the tokenizer files; raises ModelError if the chat template did not arrive."""
    tokenizer.save_pretrained(folder)
    if tokenizer.chat_template is not None and not (folder / "chat_template.jinja").is_file():
        raise ModelError(
            f"the tokenizer wrote no chat_template.jinja into {folder}",
            hint="this needs transformers 5 or newer",
        )
