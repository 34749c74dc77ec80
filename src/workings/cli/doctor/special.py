"""BOS, EOS and padding: which ids, where they come from, and whether they meet in the right way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workings.cli.doctor.findings import Finding, ok, warn
from workings.cli.doctor.model_files import ModelFiles
from workings.data.special_tokens import special_tokens
from workings.data.templates import PromptTemplate
from workings.models.load import SAMPLING_DEFAULTS

PROBE_ANSWER = "42"


def special_token_findings(
    files: ModelFiles, tokenizer: Any, template: PromptTemplate
) -> Iterator[Finding]:
    """The table of ids, padding, the automatic BOS, and how the chat template ends a turn."""
    yield ok("special tokens", "ids and where they come from", details=_table(files, tokenizer))
    yield _padding(tokenizer)
    if template.mode == "chat":
        yield _end_of_turn(files, tokenizer, template)
    yield _generation_defaults(files)


def eos_origins(files: ModelFiles, tokenizer: Any) -> dict[int, list[str]]:
    """Every id that ends a completion, and the files that name it."""
    return _origins("eos_token_id", files, tokenizer)


def _origins(name: str, files: ModelFiles, tokenizer: Any) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for origin, holder in (
        ("tokenizer", tokenizer),
        ("config.json", files.config),
        ("generation_config.json", files.generation),
    ):
        value = getattr(holder, name, None)
        for token_id in value if isinstance(value, list | tuple) else [value]:
            if token_id is not None:
                found.setdefault(int(token_id), []).append(origin)
    return found


def _table(files: ModelFiles, tokenizer: Any) -> list[str]:
    rows = [
        (name, tokenizer.convert_ids_to_tokens(token_id) or "(not in the tokenizer)", origins)
        for name in ("EOS", "BOS", "PAD")
        for token_id, origins in _origins(f"{name.lower()}_token_id", files, tokenizer).items()
    ]
    ids = [
        token_id
        for name in ("eos", "bos", "pad")
        for token_id in _origins(f"{name}_token_id", files, tokenizer)
    ]
    width = max((len(token) for _, token, _ in rows), default=0)
    prefix = special_tokens(tokenizer).automatic_prefix
    automatic = " ".join(tokenizer.convert_ids_to_tokens(list(prefix))) if prefix else "nothing"
    return [
        *(
            f"{name}  {token:<{width}}  {token_id:>6}  {', '.join(origins)}"
            for (name, token, origins), token_id in zip(rows, ids, strict=True)
        ),
        f"put before plain text by the tokenizer itself: {automatic}",
    ]


def _padding(tokenizer: Any) -> Finding:
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    if pad == eos:
        return ok("padding", "with EOS; masks come from lengths, so EOS is learnt all the same")
    return ok("padding", f"with {tokenizer.pad_token} ({pad}), which is not EOS")


def _end_of_turn(files: ModelFiles, tokenizer: Any, template: PromptTemplate) -> Finding:
    """Whether the token by which the chat template ends an answer ends a completion."""
    options = {} if template.chat_template is None else {"chat_template": template.chat_template}
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "?"}, {"role": "assistant", "content": PROBE_ANSWER}],
        tokenize=False,
        **options,
    )
    rest = str(text).rpartition(PROBE_ANSWER)[2]
    ids = tokenizer.encode(rest, add_special_tokens=False)
    special = special_tokens(tokenizer).ids
    ending = next((token_id for token_id in ids if token_id in special), None)
    known = eos_origins(files, tokenizer)
    if ending is None:
        return ok("end of a turn", "the chat template puts no control token after an answer")
    token = tokenizer.convert_ids_to_tokens(ending)
    if ending in known:
        return ok("end of a turn", f"{token} ({ending}), which ends a completion")
    return warn(
        "end of a turn",
        f"the chat template ends an answer with {token} ({ending}), which is not among the EOS "
        f"ids {', '.join(map(str, known))}",
        f"SFT here trains {tokenizer.eos_token} after a response; a model that was trained to "
        f"say {token} goes on after it: set eos_token in its tokenizer_config.json",
    )


def _generation_defaults(files: ModelFiles) -> Finding:
    """Sampling defaults that come with the model and are not used (they make rollouts alike)."""
    from transformers import GenerationConfig

    neutral = GenerationConfig()
    given = {
        name: value
        for name in SAMPLING_DEFAULTS
        if (value := getattr(files.generation, name, None)) is not None
        and value != getattr(neutral, name, None)
    }
    if not given:
        return ok("generation_config", "sets no sampling defaults")
    listed = ", ".join(f"{name}={value}" for name, value in given.items())
    return ok("generation_config", f"its {listed} are not used; the run's own settings are")
