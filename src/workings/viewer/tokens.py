"""Sampled tokens as HTML, coloured by log-probability, advantage or mask.

Their texts come from a tokenizer beside the run's models; without one their ids are shown.
"""

from __future__ import annotations

import functools
import html
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workings.errors import DataError, NotFound
from workings.viewer.files import inside
from workings.viewer.parquet_rows import Row

MODEL_FOLDERS = ("final", "best", "best_model", ".")
TOKENIZER_FILE = "tokenizer.json"
_UNLIKELY = 5.0
"""A token of this many nats below certainty (probability 0.007) has the full colour."""
_STRONG = 2.0
"""An advantage of this size has the full colour."""
_ORANGE, _BLUE, _RED, _PURPLE = "230,126,34", "0,114,178", "213,94,0", "204,121,167"


def find_tokenizer(root: Path, name: str, given: Path | None = None) -> Any:
    """The tokenizer for the file `name`, a `tokenizers.Tokenizer`, or None.

    It is `given`, a folder or file that the user named, or else one in a model folder of the run
    that the file belongs to.
    """
    if given is not None:
        file = given / TOKENIZER_FILE if given.is_dir() else given
        if not file.is_file():
            raise NotFound(f"no {TOKENIZER_FILE} at {given}")
        return _load(file, file.stat().st_mtime_ns)
    folder = inside(root, name).parent
    while folder.is_relative_to(root.resolve()):
        where = folder.relative_to(root.resolve())
        for model in MODEL_FOLDERS:
            try:
                file = inside(root, (where / model / TOKENIZER_FILE).as_posix())
            except DataError:
                continue
            return _load(file, file.stat().st_mtime_ns)
        folder = folder.parent
    return None


def token_texts(ids: Sequence[int], tokenizer: Any) -> list[str]:
    """The text that each token adds; "[123]" without a tokenizer.

    A token is decoded behind the one before it, since some tokenizers drop the space at the
    beginning of a text.
    """
    if tokenizer is None:
        return [f"[{token}]" for token in ids]
    texts = []
    for place, token in enumerate(ids):
        before = [] if place == 0 else [ids[place - 1]]
        prefix = tokenizer.decode(before, skip_special_tokens=False)
        both = tokenizer.decode([*before, token], skip_special_tokens=False)
        fits = both.startswith(prefix)
        alone = (
            both[len(prefix) :] if fits else tokenizer.decode([token], skip_special_tokens=False)
        )
        texts.append(alone)
    return texts


def tokens_html(row: Row, tokenizer: Any, *, colour: str) -> str:
    """The response of a row, a span for each token; what is known of it shows on pointing at it.

    `colour` is "logprob", "advantage" or "mask". DataError where the row has no tokens.
    """
    ids = row.get("ids")
    if not ids:
        raise DataError("no tokens are stored for this response")
    logprobs = row.get("sampling_logprobs") or [math.nan] * len(ids)
    mask = row.get("mask") or [True] * len(ids)
    off_policy = row.get("off_policy") or [False] * len(ids)
    spans = []
    texts = token_texts(ids, tokenizer)
    for place, text in enumerate(texts):
        trained, off = bool(mask[place]), bool(off_policy[place])
        style = token_style(
            colour, logprobs[place], trained=trained, off_policy=off, advantage=row["advantage"]
        )
        notes = [f"token {ids[place]}", *_notes(logprobs[place], trained=trained, off_policy=off)]
        shown = html.escape(text).replace("\n", '<i class="nl">↵</i>\n')
        spans.append(f'<span style="{style}" title="{" · ".join(notes)}">{shown}</span>')
    return f'<pre class="plain tokens">{"".join(spans)}</pre>'


def token_style(
    colour: str,
    logprob: float,
    *,
    trained: bool,
    off_policy: bool,
    advantage: float | None,
) -> str:
    """The CSS of one token; colours are transparent, so they do on light and on dark pages.

    >>> token_style("logprob", -2.5, trained=True, off_policy=False, advantage=None)
    'background:rgba(230,126,34,0.35)'
    """
    if colour == "mask":
        if off_policy:
            return f"background:rgba({_PURPLE},0.35)"
        return f"background:rgba({_BLUE},0.22)" if trained else "opacity:0.45"
    if colour == "advantage":
        if advantage is None or not trained:
            return "opacity:0.45"
        strength = 0.55 * min(1.0, abs(advantage) / _STRONG)
        return f"background:rgba({_BLUE if advantage > 0 else _RED},{strength:.2f})"
    if math.isnan(logprob):
        return "opacity:0.45"
    return f"background:rgba({_ORANGE},{0.7 * min(1.0, -logprob / _UNLIKELY):.2f})"


def _notes(logprob: float, *, trained: bool, off_policy: bool) -> list[str]:
    notes = []
    if not math.isnan(logprob):
        notes.append(f"log-probability {logprob:.3f}, probability {math.exp(logprob):.3g}")
    if off_policy:
        notes.append("off-policy")
    if not trained:
        notes.append("not trained")
    return notes


@functools.lru_cache(maxsize=4)
def _load(file: Path, mtime_ns: int) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises plain Exception for a file that it cannot read
        raise DataError(f"{file.name} cannot be read: {error}") from error
