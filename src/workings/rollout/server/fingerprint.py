"""Do trainer and inference server mean the same model and the same tokens?

Weights are no part of it, since the trainer sends its own: what has to agree is everything that
they are put into.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from workings.models.adapter_weights import named_base_shapes
from workings.models.weights import base_model

SETTINGS = (
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "rms_norm_eps",
    "rope_parameters",
    "sliding_window",
    "layer_types",
    "tie_word_embeddings",
)
"""What changes the function of equal weights; positions are checked for every request."""
LENGTH = 16


def model_fingerprint(policy: Any) -> str:
    """16 hexadecimal digits of the architecture: settings, names and shapes of the weights."""
    config = base_model(policy).config.get_text_config().to_dict()
    settings = {name: config.get(name) for name in SETTINGS}
    return _digest([settings, sorted(named_base_shapes(policy))])


def tokenizer_fingerprint(tokenizer: Any, eos_token_ids: tuple[int, ...]) -> str:
    """16 hexadecimal digits of the vocabulary, token by token, and the ids that end a text."""
    return _digest([sorted(tokenizer.get_vocab().items()), sorted(eos_token_ids)])


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str).encode("utf-8")
    return hashlib.blake2b(text, digest_size=LENGTH // 2).hexdigest()
