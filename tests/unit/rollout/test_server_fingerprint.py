"""Equal architectures have equal fingerprints, whatever their weights and adapters."""

from __future__ import annotations

import torch

from tiny import tiny_model, tiny_tokenizer
from workings.models.lora import add_lora
from workings.rollout.server.fingerprint import model_fingerprint, tokenizer_fingerprint

TOKENIZER = tiny_tokenizer()


def test_weights_dtype_and_adapters_do_not_matter() -> None:
    plain = model_fingerprint(tiny_model(TOKENIZER))
    assert plain == model_fingerprint(tiny_model(TOKENIZER, seed=4))
    assert plain == model_fingerprint(tiny_model(TOKENIZER, dtype=torch.bfloat16))
    adapted = add_lora(
        tiny_model(TOKENIZER), rank=2, alpha=2.0, dropout=0.0, targets=("q_proj",), seed=0
    )
    assert plain == model_fingerprint(adapted)


def test_shape_depth_and_settings_matter() -> None:
    plain = model_fingerprint(tiny_model(TOKENIZER))
    assert plain != model_fingerprint(tiny_model(TOKENIZER, layers=3))
    assert plain != model_fingerprint(tiny_model(TOKENIZER, width=64))
    assert plain != model_fingerprint(tiny_model(TOKENIZER, tied=False))
    other = tiny_model(TOKENIZER)
    other.config.rms_norm_eps = 1e-3
    assert plain != model_fingerprint(other)


def test_vocabulary_and_ends_matter() -> None:
    plain = tokenizer_fingerprint(TOKENIZER, (3,))
    assert plain == tokenizer_fingerprint(tiny_tokenizer(chat_template=None), (3,))
    assert plain != tokenizer_fingerprint(TOKENIZER, (3, 4))
    other = tiny_tokenizer()
    other.add_tokens(["new"])
    assert plain != tokenizer_fingerprint(other, (3,))
