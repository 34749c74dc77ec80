"""A tokenizer that is ready to use: chat template set, EOS present, a pad token chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from workings.errors import ModelError, said
from workings.models.gguf import convert_gguf
from workings.models.quiet import quiet_transformers
from workings.models.source import KNOWN_MODELS, ModelSource, resolve_source

PROBED_IDS = 64
"""So many ids of the vocabulary are written out and read again."""


class LoadedTokenizer(NamedTuple):
    """A tokenizer and the lines that say what was changed about it."""

    tokenizer: Any
    notes: tuple[str, ...]


def load_tokenizer(
    path: str, *, chat_template: str | None = None, trust_remote_code: bool = False
) -> Any:
    """The tokenizer of a folder, hub id, GGUF file or known name.

    Args:
        path: as in `load_model`.
        chat_template: Jinja text, or a file of it, that replaces the model's own.
        trust_remote_code: run tokenizer code that comes with the model.

    Raises ModelError where there is no tokenizer or no EOS token. A tokenizer without a pad token
    pads with EOS; that is safe because masks come from lengths, never from token ids.
    """
    return load_tokenizer_with_notes(
        resolve_source(path), chat_template=chat_template, trust_remote_code=trust_remote_code
    ).tokenizer


def load_tokenizer_with_notes(
    source: ModelSource, *, chat_template: str | None, trust_remote_code: bool
) -> LoadedTokenizer:
    """`load_tokenizer` for a resolved source, with what was changed."""
    location = source.location
    if source.kind == "gguf":
        location = str(convert_gguf(location))
    tokenizer, found = _reading_own_words(
        _read(location, source, trust_remote_code), location, source.name
    )
    # Decoded text is compared and searched, so it must be what the tokens say, to the space.
    tokenizer.clean_up_tokenization_spaces = False
    notes = list(found)
    if chat_template is not None:
        tokenizer.chat_template = read_template(chat_template)
        notes.append("chat template: replaced by the configured one")
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"the tokenizer of {source.name} has no EOS token, so no response could ever end",
            hint='set "eos_token" in its tokenizer_config.json',
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
        notes.append(
            f"pad token: the tokenizer has none, so EOS ({tokenizer.eos_token}) pads; masks come "
            "from lengths, so EOS is still learnt"
        )
    return LoadedTokenizer(tokenizer, tuple(notes))


def read_template(text_or_file: str) -> str:
    """Jinja text; a file is read, text that holds a Jinja tag is returned as it is.

    >>> read_template("{{ messages[0]['content'] }}")
    "{{ messages[0]['content'] }}"
    """
    if "{{" in text_or_file or "{%" in text_or_file:
        return text_or_file
    path = Path(text_or_file).expanduser()
    if not path.is_file():
        raise ModelError(
            f"chat_template={text_or_file!r} is neither Jinja text (it holds no '{{{{' or '{{%') "
            "nor a file"
        )
    return path.read_text(encoding="utf-8")


def _read(location: str, source: ModelSource, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer

    if source.kind != "hub" and not _has_tokenizer(Path(location)):
        raise ModelError(
            f"{source.name} holds no tokenizer (no tokenizer.json, tokenizer.model or vocab file)",
            hint="copy the tokenizer files of the base model into that folder",
        )
    try:
        with quiet_transformers():
            return AutoTokenizer.from_pretrained(location, trust_remote_code=trust_remote_code)
    except Exception as error:  # The reader of a broken file may raise anything.
        raise ModelError(
            f"cannot load the tokenizer of {source.name}: {said(error)}", hint=hub_hint(source)
        ) from error


def _reading_own_words(tokenizer: Any, location: str, name: str) -> LoadedTokenizer:
    """The tokenizer, or the one of tokenizer.json as it stands, where the first reads no word.

    transformers chooses a class by the model's family. One that splits text otherwise than
    tokenizer.json says can leave every prompt empty, and nothing else would tell.

    Raises ModelError where neither makes anything of words from the vocabulary.
    """
    if _reads_own_words(tokenizer):
        return LoadedTokenizer(tokenizer, ())
    family = type(tokenizer).__name__
    if (Path(location) / "tokenizer.json").is_file():
        from transformers import PreTrainedTokenizerFast

        with quiet_transformers():
            plain = PreTrainedTokenizerFast.from_pretrained(location)
        if _reads_own_words(plain):
            note = (
                f"tokenizer: tokenizer.json as it stands, since {family}, which transformers takes "
                "for this family of models, makes nothing of words from its vocabulary"
            )
            return LoadedTokenizer(plain, (note,))
    raise ModelError(
        f"the tokenizer of {name}, read as {family}, makes nothing of words from its own "
        "vocabulary, so every prompt would be lost",
        hint="use the tokenizer that the model was trained with",
    )


def _reads_own_words(tokenizer: Any) -> bool:
    """Whether text written with its vocabulary gives ids, some of them of known tokens."""
    special, size = set(tokenizer.all_special_ids), len(tokenizer)
    ids = [one for one in range(0, size, max(1, size // PROBED_IDS)) if one not in special]
    text = tokenizer.decode(ids)
    if not text.strip():
        return not ids
    found = tokenizer.encode(text, add_special_tokens=False)
    return any(one != tokenizer.unk_token_id for one in found)


def _has_tokenizer(folder: Path) -> bool:
    names = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
    return any((folder / name).is_file() for name in names)


def hub_hint(source: ModelSource) -> str | None:
    """What to do when something does not come from the hub; None for a local source."""
    if source.kind != "hub":
        return None
    known = ", ".join(sorted(KNOWN_MODELS))
    return (
        f"check the hub id and the network, or give a local folder; names that need no network: "
        f"{known}"
    )
