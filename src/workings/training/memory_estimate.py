"""What training holds in memory, by arithmetic: what lasts, and what a token of a microbatch adds.

A token's activations are counted tensor by tensor, as the backward pass of a Llama-like decoder
layer reads them; Korthikanti et al., 2022 (2205.05198, section 4) count those of a GPT the same
way. The sums stay above what is measured, by a tenth or so: gradients are taken to be there while
another microbatch is computed, and every token to be scored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workings.objectives.logits_memory import logits_bytes
from workings.training.activation_checkpointing import Checkpointing
from workings.training.offloaded_adamw import DEFAULT_BUCKET_BYTES

WEIGHT_BYTES, GRADIENT_BYTES, ADAMW_BYTES = 4, 4, 8
"""Per parameter: float32 weights and gradients, and AdamW's two float32 states."""
STATE_BYTES: dict[str, float] = {"adamw": ADAMW_BYTES, "adamw_8bit": 2 + 8 / 256, "rmsprop": 4}
"""Per trained parameter, on the device; 8 bits have a float32 scale for every 256 moments."""
_STAGES = 3
"""Buckets of an offloaded optimizer that are on the device at once."""
_OWN_PROCESS_BYTES = 1 << 29
"""CUDA's context in a process, and what its allocator leaves unused."""
_RESTING_VLLM_BYTES = 2 << 30
"""Captured graphs and work space of vLLM, which stay while it sleeps."""
_LOGIT_BYTES = 12
"""Of one logit of a decode step that an engine has captured: bfloat16, and two in float32."""
_NORMED_HEADS = ("qwen3", "gemma3", "olmo2", "olmo3")
"""Families whose layers normalise queries and keys too, by the start of their name."""
_FOUR_NORMS = ("gemma2", "gemma3")
"""Families with a norm behind attention and MLP as well as before them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes by part. Sampling and the forward pass do not happen at once.

    Attributes:
        copies: of the layers' weights in the dtype of the arithmetic.
        reference: a frozen copy of what is trained.
        engine: what an engine on the device holds while the trainer works.
        kv_cache: of an engine that gives it back while the trainer works.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    kv_cache: int
    engine: int = 0
    copies: int = 0
    reference: int = 0

    @property
    def lasting(self) -> int:
        """What is held all the time."""
        own = self.weights + self.gradients + self.optimizer + self.reference
        return own + self.engine

    @property
    def training(self) -> int:
        """What is held during a training step, the activations left out."""
        return self.lasting + self.copies

    @property
    def peak(self) -> int:
        """The most at one time."""
        return self.lasting + max(self.copies + self.activations, self.kv_cache)

    def describe(self) -> str:
        """The parts in one line."""
        parts = {
            "weights": self.weights,
            "copies of them in half precision": self.copies,
            "the reference": self.reference,
            "gradients": self.gradients,
            "optimizer": self.optimizer,
            "the engine beside the trainer": self.engine,
            "activations": self.activations,
            "KV cache of sampling": self.kv_cache,
        }
        return ", ".join(f"{name} {size / 1e9:.2f} GB" for name, size in parts.items() if size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """Numbers of one token in the parts of a decoder.

    Attributes:
        normed: of the norms of a layer's stream together.
        normed_heads: of norms of queries and keys.
        gated: inside the MLP; of a mixture of experts, inside those that a token goes through.
        queries, keys: heads times their size.
        scores: of attention, where they are kept (eager); 0 elsewhere.
        adapters: that adapters (LoRA) keep in a layer besides.
    """

    layers: int
    hidden: int
    normed: int
    gated: int
    queries: int
    keys: int
    vocabulary: int
    scores: int = 0
    normed_heads: int = 0
    adapters: float = 0.0


def widths_of(config: Any, *, eager_length: int = 0, adapters: float = 0.0) -> Widths:
    """The widths in the (text) configuration of a Hugging Face causal model.

    `eager_length` is the length of the longest row under eager attention, 0 under any other.
    """
    hidden, heads = config.hidden_size, getattr(config, "num_attention_heads", 1) or 1
    head_dim = getattr(config, "head_dim", None) or hidden // heads
    queries, keys = heads * head_dim, key_width(config)
    kind = str(getattr(config, "model_type", ""))
    normed = (4 if kind.startswith(_FOUR_NORMS) else 2) * hidden
    return Widths(
        layers=config.num_hidden_layers,
        hidden=hidden,
        normed=normed,
        gated=_gated(config),
        queries=queries,
        keys=keys,
        vocabulary=config.vocab_size,
        scores=heads * eager_length,
        normed_heads=queries + keys if kind.startswith(_NORMED_HEADS) else 0,
        adapters=adapters,
    )


def _gated(config: Any) -> int:
    expert = getattr(config, "moe_intermediate_size", None)
    chosen = getattr(config, "num_experts_per_tok", None)
    dense = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    if expert is None or chosen is None:
        return int(dense * (chosen or 1))
    shared = getattr(config, "shared_expert_intermediate_size", None) or 0
    return int(max(dense, expert * chosen + shared))


def key_width(config: Any) -> int:
    """Numbers in the keys of one token and layer."""
    heads = getattr(config, "num_attention_heads", 1) or 1
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(size * (getattr(config, "num_key_value_heads", None) or heads))


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """What a microbatch adds to what lasts.

    Attributes:
        fused: norms, rotation and gate are one kernel each, which keep less than transformers' own.
        number_bytes: of a number in the arithmetic.
        gpu_bytes: memory of the GPU that computes in half precision; None for anything else.
        head_trained: the vocabulary projection has a gradient.
    """

    widths: Widths
    checkpointing: Checkpointing
    fused: bool
    number_bytes: int
    gpu_bytes: int | None
    head_trained: bool

    @property
    def layer_numbers(self) -> float:
        """Numbers of a token that the backward pass of one layer reads.

        A norm reads its input, in float32 in transformers' own, and what follows reads its output;
        attention reads queries, keys, values and its result; the MLP reads gate, up and their
        product, and transformers' own the activated gate too. Norms of heads count as theirs.
        """
        width = self.widths
        norms = (2 if self.fused else 4) * width.normed + 4 * width.normed_heads
        attention = 2 * width.queries + 2 * width.keys + 4 * width.scores
        return norms + attention + (3 if self.fused else 4) * width.gated + width.adapters

    @property
    def kept_numbers(self) -> float:
        """Numbers of a token that all layers keep between forward and backward pass."""
        width = self.widths
        match self.checkpointing:
            case "none":
                return width.layers * self.layer_numbers
            case "selective":
                products = 2 * width.hidden + 2 * width.queries + 2 * width.keys + 2 * width.gated
                return width.layers * (width.hidden + products + width.adapters)
            case "full":
                return float(width.layers * width.hidden)
            case "offloaded":
                return float(2 * width.hidden)  # one input leaves or comes while one is in use

    def num_bytes(self, num_tokens: int) -> int:
        """The most that a microbatch of so many tokens holds at one time; 0 for none.

        That is at the head, where its logits are, or in the backward pass, in a layer that is
        computed again with its gradients. A gradient of the head, and the head in the dtype of the
        arithmetic, last from one to the other.
        """
        if num_tokens == 0:
            return 0
        width, each = self.widths, self.number_bytes
        head = WEIGHT_BYTES if self.head_trained else 0
        head += each if each < WEIGHT_BYTES else 0
        ends = 8 * width.hidden  # the embedding's output, the last norm, and what the head reads
        logits = logits_bytes(
            num_tokens,
            width.vocabulary,
            number_bytes=each,
            gpu_bytes=self.gpu_bytes,
            keeps_logits=self.checkpointing in ("none", "selective"),
        )
        layer = int(2 * num_tokens * each * self.layer_numbers)
        kept = int(num_tokens * each * (self.kept_numbers + ends))
        return head * width.vocabulary * width.hidden + kept + max(logits, layer)

    def most_tokens(self, free: int, *, most: int) -> int:
        """The largest microbatch, up to `most` tokens, that takes no more than `free` bytes."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.num_bytes(middle) <= free else (low, middle - 1)
        return low


def optimizer_bytes(
    name: str,
    trained: int,
    *,
    offload: bool,
    offload_gradients: bool,
    narrow: bool,
    on_gpu: bool,
) -> tuple[int, int]:
    """Bytes of gradients and of the optimizer's state for `trained` parameters, on the device.

    `narrow`: the arithmetic is in half precision, so that an offloaded optimizer has masters. On a
    CPU what is offloaded is in the same memory.
    """
    gradients, state = GRADIENT_BYTES * trained, int(STATE_BYTES[name] * trained)
    if not offload:
        return gradients, state
    if not on_gpu:
        return gradients, state + (WEIGHT_BYTES * trained if narrow else 0)
    stages = min(_STAGES * DEFAULT_BUCKET_BYTES, state)
    return (0 if offload_gradients else gradients), stages


def cache_bytes(widths: Widths, num_tokens: int, *, number_bytes: int) -> int:
    """Bytes of keys and values of so many tokens."""
    return 2 * num_tokens * widths.layers * widths.keys * number_bytes


def engine_bytes(
    name: str,
    *,
    num_parameters: int,
    number_bytes: int,
    vocabulary: int,
    num_rows: int,
    awake_bytes: int,
    share_bytes: int,
    own_process: bool,
) -> int:
    """Bytes that an engine on the trainer's device holds while the trainer works.

    `awake_bytes` is its key-value cache where that stays, 0 for an engine that gives it back;
    `share_bytes` is the share of the device that it was given, `num_rows` what it decodes at once.
    An engine that was left open counts as the paged one, the largest.
    """
    if name == "server":
        return 0
    held = _OWN_PROCESS_BYTES if own_process else 0
    if name == "vllm":
        return held + (share_bytes if awake_bytes else min(_RESTING_VLLM_BYTES, share_bytes))
    if name == "transformers" and not own_process:
        return held
    logits = _LOGIT_BYTES * vocabulary * num_rows
    return held + number_bytes * num_parameters + logits + min(awake_bytes, share_bytes)
