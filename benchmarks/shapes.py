"""Models of published shapes with random weights, a tokenizer for them, and prompts.

A measurement of speed needs the shape of a model and not what it knows. `write_model` leaves a
folder in the Hugging Face layout that transformers, vLLM and TRL read as they read any other. Its
tokenizer knows one word for each id, so that text and ids of a prompt have the length asked for.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast

EOS, PAD, UNKNOWN = "<eos>", "<pad>", "<unk>"
SPECIAL = (EOS, PAD, UNKNOWN)
STANDARD_DEVIATION = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a model's config.json says about sizes; embedding and output head are one matrix."""

    name: str
    family: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    rope_theta: float
    norm_eps: float
    positions: int

    @property
    def head_dim(self) -> int:
        """Width of an attention head."""
        return self.hidden // self.heads

    @property
    def num_parameters(self) -> int:
        """Numbers in all weights, the shared matrix counted once.

        >>> round(SHAPES["1.5B"].num_parameters / 1e9, 3), SHAPES["135M"].num_parameters
        (1.544, 134515008)
        """
        return sum(rows * (columns or 1) for _, rows, columns in weight_sizes(self))


def _qwen(name: str, hidden: int, intermediate: int, layers: int, heads: int) -> Shape:
    return Shape(
        name=name,
        family="qwen2",
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        heads=heads,
        kv_heads=2,
        vocabulary=151936,
        rope_theta=1e6,
        norm_eps=1e-6,
        positions=32768,
    )


def _llama(
    name: str, hidden: int, intermediate: int, layers: int, heads: int, **rest: Any
) -> Shape:
    sizes = {"kv_heads": 3, "vocabulary": 49152, "rope_theta": 1e5, "positions": 8192} | rest
    return Shape(
        name=name,
        family="llama",
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        heads=heads,
        norm_eps=1e-5,
        **sizes,
    )


SHAPES = {
    shape.name: shape
    for shape in (
        _qwen("0.5B", 896, 4864, 24, 14),
        _qwen("1.5B", 1536, 8960, 28, 12),
        _qwen("3B", 2048, 11008, 36, 16),
        _llama("135M", 576, 1536, 30, 9),
        _llama("tiny", 64, 128, 2, 4, kv_heads=2, vocabulary=256, positions=512),
    )
}
"""Qwen2.5 by its size, SmolLM2-135M, and one for a CPU."""


def weight_sizes(shape: Shape) -> Iterator[tuple[str, int, int | None]]:
    """(Hugging Face name, rows, columns) of every weight; a vector has no columns."""
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield "model.embed_tokens.weight", shape.vocabulary, shape.hidden
    yield "model.norm.weight", shape.hidden, None
    for layer in range(shape.layers):
        at = f"model.layers.{layer}"
        for name, rows in (("q_proj", query), ("k_proj", key), ("v_proj", key)):
            yield f"{at}.self_attn.{name}.weight", rows, shape.hidden
            if shape.family == "qwen2":
                yield f"{at}.self_attn.{name}.bias", rows, None
        yield f"{at}.self_attn.o_proj.weight", shape.hidden, query
        yield f"{at}.mlp.gate_proj.weight", shape.intermediate, shape.hidden
        yield f"{at}.mlp.up_proj.weight", shape.intermediate, shape.hidden
        yield f"{at}.mlp.down_proj.weight", shape.hidden, shape.intermediate
        yield f"{at}.input_layernorm.weight", shape.hidden, None
        yield f"{at}.post_attention_layernorm.weight", shape.hidden, None


def write_model(shape: Shape, folder: Path, *, seed: int = 0, device: str = "cpu") -> Path:
    """`folder` with bfloat16 weights N(0, 0.02^2), config and tokenizer; made once.

    Args:
        device: where the numbers are drawn; a card takes a second where a processor takes many.
    """
    done = folder / "tokenizer_config.json"
    if done.is_file():
        return folder
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator(device).manual_seed(seed)
    tensors = {
        name: _weight(name, rows, columns, generator) for name, rows, columns in weight_sizes(shape)
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _write(folder / "generation_config.json", {"eos_token_id": 0, "pad_token_id": 1})
    write_tokenizer(shape, folder)
    return folder


def _weight(name: str, rows: int, columns: int | None, generator: torch.Generator) -> torch.Tensor:
    import torch

    size = (rows,) if columns is None else (rows, columns)
    weight = torch.empty(size, dtype=torch.bfloat16, device=generator.device)
    if "norm" in name:
        return weight.fill_(1.0)
    if name.endswith("bias"):
        return weight.zero_()
    return weight.normal_(0.0, STANDARD_DEVIATION, generator=generator)


def model_config(shape: Shape) -> dict[str, Any]:
    """The content of config.json."""
    architecture = {"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}[shape.family]
    return {
        "architectures": [architecture],
        "model_type": shape.family,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.positions,
        "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.norm_eps,
        "hidden_act": "silu",
        "initializer_range": STANDARD_DEVIATION,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 1,
    }


def write_tokenizer(shape: Shape, folder: Path) -> None:
    """Puts the config and a tokenizer with a word for each id into the folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    _write(folder / "config.json", model_config(shape))
    words = {word: number for number, word in enumerate(SPECIAL)}
    words |= {word_of(number): number for number in range(len(SPECIAL), shape.vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": EOS,
        "pad_token": PAD,
        "unk_token": UNKNOWN,
        "model_max_length": shape.positions,
        "clean_up_tokenization_spaces": False,
    }
    _write(folder / "tokenizer_config.json", settings)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer that `write_model` wrote; `text_of` and it undo each other.

    AutoTokenizer would go by the model's family, and Qwen2's class takes no words apart from its
    own: every prompt would be empty.
    """
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    ids = tuple(range(len(SPECIAL), len(SPECIAL) + 3))
    if (found := tuple(tokenizer(text_of(ids))["input_ids"])) != ids:
        raise ValueError(f"{folder}: the tokenizer makes {found} of {text_of(ids)!r}, not {ids}")
    return tokenizer


def word_of(token_id: int) -> str:
    """The word of an id."""
    return f"w{token_id}"


def text_of(token_ids: tuple[int, ...]) -> str:
    """A prompt as text; the tokenizer makes the same ids of it."""
    return " ".join(map(word_of, token_ids))


def random_prompts(shape: Shape, count: int, length: int, *, seed: int) -> list[tuple[int, ...]]:
    """`count` prompts of `length` ids each, none of them special."""
    draw = random.Random(seed)
    first = len(SPECIAL)
    return [
        tuple(draw.randrange(first, shape.vocabulary) for _ in range(length)) for _ in range(count)
    ]


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
