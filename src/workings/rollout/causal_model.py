"""The two calls that sampling makes on a Hugging Face causal model: prefill and one decode step."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import DynamicCache

from workings.errors import EngineError
from workings.rollout.decode_attention import decoding_attention
from workings.rollout.kv_cache import RowCache

LAYER_TYPES = {"full_attention", "sliding_attention"}


class CausalModel:
    """A module and what is known about how to call it.

    Attributes:
        module: the Hugging Face model; its adapters, if it has any, stay in effect.
        device: where it is.
        vocabulary: columns of its logits.
        max_positions: most tokens of a row; None where the model states no limit.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self._config = module.config.get_text_config()
        self._cache_argument = _cache_argument(module)
        self._windows = _windows(self._config)
        embedding = module.get_input_embeddings().weight
        self.device: torch.device = embedding.device
        self.vocabulary: int = embedding.shape[0]
        self.max_positions: int | None = getattr(self._config, "max_position_embeddings", None)

    def prefill(
        self, prompts: Sequence[Sequence[int]], shared: DynamicCache | None = None
    ) -> tuple[DynamicCache, torch.Tensor]:
        """Processes whole prompts at once.

        Args:
            prompts: token ids of each row, without what `shared` holds.
            shared: the cache of one row whose tokens come before every prompt.

        Returns:
            The cache, padded on the right, and the logits [rows, vocabulary] after each prompt's
            last token.
        """
        lengths = [len(prompt) for prompt in prompts]
        width = max(lengths)
        rows = [[*prompt, *[0] * (width - len(prompt))] for prompt in prompts]
        tokens = torch.tensor(rows, device=self.device)
        last = torch.tensor(lengths, device=self.device) - 1
        cache = DynamicCache() if shared is None else expand_cache(shared, len(prompts))
        # Attention is causal, so padding behind a prompt changes nothing before it.
        with _only_last_position(self.module, last):
            output = self.module(input_ids=tokens, use_cache=True, **{self._cache_argument: cache})
        return cache, output.logits[:, -1]

    def decode(self, tokens: Sequence[int], cache: RowCache) -> torch.Tensor:
        """Logits [rows, vocabulary] after one more token in every row of the cache."""
        cache.prepare_step()
        with decoding_attention(self._config):
            output = self.module(
                input_ids=torch.tensor(tokens, device=self.device)[:, None],
                attention_mask=self._masks(cache),
                position_ids=cache.lengths[:, None],
                use_cache=True,
                **{self._cache_argument: cache.model_cache},
            )
        cache.finish_step()
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _masks(self, cache: RowCache) -> Any:
        dtype = self.module.dtype
        masks = {name: cache.mask(dtype, window) for name, window in self._windows.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))


def expand_cache(cache: DynamicCache, rows: int) -> DynamicCache:
    """A cache of `rows` equal rows from a cache of one row."""
    expanded = DynamicCache()
    for index, layer in enumerate(cache.layers):
        shape = (rows, -1, -1, -1)
        expanded.update(layer.keys.expand(shape), layer.values.expand(shape), index)
    return expanded


@contextmanager
def sampling_mode(module: Any) -> Iterator[None]:
    """Evaluation mode, no gradients and no autocast inside; the module is as before afterwards."""
    training = [part for part in module.modules() if part.training]
    device_type = module.get_input_embeddings().weight.device.type
    try:
        for part in training:
            part.training = False
        with torch.no_grad(), torch.autocast(device_type, enabled=False):
            yield
    finally:
        for part in training:
            part.training = True


@contextmanager
def _only_last_position(module: Any, last: torch.Tensor) -> Iterator[None]:
    """Hands only position `last` of each row to the output head, so that prefill makes no logits
    for the other positions (`logits_to_keep` cannot say so when lengths differ)."""

    def select(head: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
        hidden = arguments[0]
        rows = torch.arange(hidden.shape[0], device=hidden.device)
        return (hidden[rows, last][:, None], *arguments[1:])

    handle = module.get_output_embeddings().register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()


def _cache_argument(module: Any) -> str:
    """The name of the cache argument, which transformers 5 renamed on the way."""
    names = inspect.signature(module.forward).parameters
    found = [name for name in ("cache", "past_key_values") if name in names]
    stateful = getattr(module, "_is_stateful", False)
    if stateful or not found or "position_ids" not in names or not module.get_output_embeddings():
        raise EngineError(
            f"{type(module).__name__} cannot be sampled by the transformers engine, which needs a "
            "causal model with a key-value cache, position ids and an output head",
            hint="use a model of the Llama, Qwen, Mistral, Gemma or GPT-2 kind",
        )
    return found[0]


def _windows(config: Any) -> dict[str, int | None]:
    """The attention window of each kind of layer; None is unlimited."""
    sliding = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ())
    if not kinds <= LAYER_TYPES:
        raise EngineError(
            f"{config.model_type} has layers of kind {', '.join(sorted(kinds - LAYER_TYPES))}, "
            "which the transformers engine cannot decode; expected full or sliding attention"
        )
    if not kinds:
        return {"full_attention": sliding}
    return {kind: sliding if kind == "sliding_attention" else None for kind in sorted(kinds)}
