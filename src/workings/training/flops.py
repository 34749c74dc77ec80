"""How many operations training is worth, and what share of a device's peak that is (MFU)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workings.models.weights import base_model
from workings.training.distributed import Ranks, sum_counts
from workings.training.packing import Layout, TrainRow

CARDS: tuple[tuple[tuple[str, ...], float], ...] = (
    (("B200",), 2250.0),
    (("GH200",), 989.4),
    (("H200",), 989.4),
    (("H100", "PCIe"), 756.5),
    (("H100", "NVL"), 835.5),
    (("H100",), 989.4),
    (("H20",), 148.0),
    (("A100",), 312.0),
    (("L40S",), 362.1),
    (("L40",), 181.0),
    (("L4",), 121.0),
    (("A40",), 149.7),
    (("A10G",), 70.0),
    (("A10",), 125.0),
    (("RTX A6000",), 154.8),
    (("RTX 4090",), 165.2),
    (("RTX 3090",), 71.0),
)
"""Parts of a card's name, and its dense bfloat16 TFLOP/s with float32 sums, by the maker's sheet;
the first whose parts all occur is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What the work of a model depends on.

    Attributes:
        num_trained, num_frozen: parameters; a tied tensor counts once. Quantised ones count as the
            weights that they stand for.
        num_layers: with attention.
        attention_width: query heads times their size.
    """

    num_trained: int
    num_frozen: int
    num_layers: int
    attention_width: int


def shape_of(model: Any) -> ModelShape:
    """The shape of a Hugging Face causal model, with an adapter or without."""
    inner = base_model(model)
    config = inner.config.get_text_config()
    heads = getattr(config, "num_attention_heads", 0)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // max(heads, 1)
    adapters = sum(p.numel() for name, p in inner.named_parameters() if ".lora_" in name)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return ModelShape(
        num_trained=trained,
        num_frozen=max(0, inner.num_parameters() - (trained if adapters == 0 else adapters)),
        num_layers=config.num_hidden_layers,
        attention_width=heads * head_dim,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a step computes: tokens, and pairs of a token and one that it attends to."""

    num_tokens: int = 0
    num_pairs: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            num_tokens=self.num_tokens + other.num_tokens,
            num_pairs=self.num_pairs + other.num_pairs,
        )


def work_of(rows: Sequence[TrainRow], layout: Layout, ranks: Ranks) -> Work:
    """The work of rows over all ranks, at their real lengths: padding is none.

    A prompt that the layout shares among the rows of its group is computed once.
    """
    shared = layout in ("shared_prompt", "shared_documents")
    seen: set[int] = set()
    tokens = pairs = 0
    for row in rows:
        if row.num_trained == 0:
            continue
        prompt, response = len(row.prompt_ids), len(row.response_ids)
        tokens += response
        pairs += response * prompt + response * (response + 1) // 2
        if not shared or row.group not in seen:
            tokens += prompt
            pairs += prompt * (prompt + 1) // 2
            seen.add(row.group)
    num_tokens, num_pairs = sum_counts([tokens, pairs], ranks)
    return Work(num_tokens=num_tokens, num_pairs=num_pairs)


def training_flops(shape: ModelShape, work: Work) -> float:
    """Operations of forward and backward over this work, in FLOP.

    Every token costs 2 operations a parameter forward, 2 backward for the activations, and 2 more
    where the parameter is trained: 6 N in full training (Kaplan et al., 2001.08361, section 2.1).
    A pair costs two products forward and four backward: 12 operations a layer and unit of attention
    width. Recomputation is not counted.

    >>> shape = ModelShape(num_trained=10, num_frozen=0, num_layers=2, attention_width=4)
    >>> training_flops(shape, Work(num_tokens=3, num_pairs=6))  # 3 x 60 + 12 x 2 x 4 x 6
    756.0
    """
    by_token = 6 * shape.num_trained + 4 * shape.num_frozen
    by_pair = 12 * shape.num_layers * shape.attention_width
    return float(work.num_tokens * by_token + work.num_pairs * by_pair)


def peak_flops(card: str) -> float | None:
    """Peak of a card in bfloat16, FLOP/s, by the name that CUDA gives it; None for an unknown one.

    >>> peak_flops("NVIDIA H100 80GB HBM3")
    989400000000000.0
    >>> peak_flops("NVIDIA L40S"), peak_flops("NVIDIA Toy")
    (362100000000000.0, None)
    """
    for parts, tera in CARDS:
        if all(part in card for part in parts):
            return tera * 1e12
    return None
