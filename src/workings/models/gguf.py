"""A GGUF file as a Hugging Face folder of float32 safetensors, converted once and cached.

transformers reads a GGUF file by dequantising every tensor, which takes seconds to minutes each
time. Here that happens once per file content; later loads read plain safetensors.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tempfile
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from workings.errors import ModelError, said
from workings.models.quiet import quiet_transformers

CONVERSION_FORMAT = 1
"""Part of the cache key; raised when the converted folder would differ for the same file."""


def cache_folder() -> Path:
    """`WORKINGS_CACHE_DIR`, else `~/.cache/workings`."""
    named = os.environ.get("WORKINGS_CACHE_DIR")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "workings"


def convert_gguf(file: str | os.PathLike[str]) -> Path:
    """The cached Hugging Face folder of a GGUF file, made now if it is not there yet.

    The weights are the dequantised ones in float32, the tokenizer carries the file's chat
    template. The key is the content, so a file that moved is not converted again. Two processes
    that convert at the same time do the work twice and keep one result.
    """
    path = Path(file)
    root = cache_folder() / "gguf"
    target = root / f"{path.stem}-{_content_key(path)}"
    if (target / "config.json").is_file():
        return target
    root.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{path.stem}-", dir=root))
    try:
        _write_converted(path, partial)
        partial.chmod(0o755)
        try:
            partial.rename(target)
        except OSError:
            if not (target / "config.json").is_file():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _content_key(path: Path) -> str:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    digest.update(f"format {CONVERSION_FORMAT}".encode())
    return digest.hexdigest()[:16]


def _write_converted(file: Path, folder: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        # transformers draws one of its progress bars past its own switch.
        with quiet_transformers(), redirect_stderr(io.StringIO()):
            tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
            _set_special_tokens(tokenizer, file)
            model, info = AutoModelForCausalLM.from_pretrained(
                str(file.parent),
                gguf_file=file.name,
                dtype=torch.float32,
                output_loading_info=True,
            )
    except Exception as error:  # The reader of a broken file may raise anything.
        raise ModelError(
            f"transformers cannot read {file.name}: {said(error)}",
            hint="use a GGUF of a Llama, Qwen2, Qwen3 or SmolLM model, or a Hugging Face folder",
        ) from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelError(
            f"{file.name} lacks {len(missing)} weights of {type(model).__name__}, such as "
            f"{missing[0]}",
            hint="transformers does not map every family; use the model's Hugging Face folder",
        )
    # save_pretrained refuses a model that was loaded from GGUF, so its parts are written here. A
    # parameter appears once under its first name: a tied head is tied again on loading.
    tensors = {name: tensor.detach().contiguous() for name, tensor in model.named_parameters()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    settings = model.config.to_dict()
    for name in ("quantization_config", "_name_or_path"):
        settings.pop(name, None)
    settings |= {"architectures": [type(model).__name__], "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    tokenizer.save_pretrained(folder)


def _set_special_tokens(tokenizer: Any, file: Path) -> None:
    """Gives the tokenizer the BOS, EOS, pad and unknown tokens that the file names.

    transformers before 5.24 guesses them, and takes SmolLM2's BOS for its EOS.
    """
    from gguf import GGUFReader

    fields = GGUFReader(file).fields
    for name in ("bos", "eos", "padding", "unknown"):
        field = fields.get(f"tokenizer.ggml.{name}_token_id")
        if field is not None:
            attribute = {"padding": "pad_token", "unknown": "unk_token"}.get(name, f"{name}_token")
            token = tokenizer.convert_ids_to_tokens(int(field.contents()))
            setattr(tokenizer, attribute, token)
