"""How the decoder layers of a policy run in training: what is recomputed, what is compiled.

A layer gets a stand-in for its `forward`, on the instance, so that names of weights, checkpoints
and the model's class stay what they are. An engine that samples from the same model calls its
layers with a cache, and then they run as they are.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn

from workings.errors import ModelError
from workings.models.liger import apply_liger, has_liger, liger_supports
from workings.models.weights import base_model
from workings.objectives.logprobs import has_triton
from workings.training.activation_checkpointing import (
    RECOMPUTING,
    Checkpointing,
    Recomputation,
)
from workings.training.attention import attention_to
from workings.training.fused.layer import FusedForward, FusedNorm, fused_supports

Kernels = Literal["auto", "plain", "fused", "liger", "compiled"]
TITLES: dict[Kernels, str] = {
    "plain": "plain layers",
    "fused": "fused layers",
    "liger": "layers with Liger's kernels",
    "compiled": "compiled layers",
}
CACHES = ("cache", "past_key_values", "layer_past")
RECOMPILES = 64
"""Variants of a layer (lengths, modes, masks) that torch compiles before it gives up; it says 8."""


def prepare_layers(
    model: nn.Module, *, checkpointing: Checkpointing = "none", kernels: Kernels = "plain"
) -> str:
    """Make the layers of `model` run as asked; what they do then, as text for a log.

    `auto` kernels are, on a GPU, our own for the families that they know, and Liger's for others,
    where liger-kernel is installed and knows the model. Called again, the last call counts, but for
    Liger's kernels, which stay. Raises ModelError where no layers are found, and for kernels that
    cannot run here.
    """
    kernels, text = _choose_kernels(model, kernels)
    inner = base_model(model)
    for module in inner.modules():
        stand_in = module.__dict__.get("forward")
        if isinstance(stand_in, (LayerForward, FusedNorm)):
            module.forward = stand_in.own
    RECOMPUTING.discard(inner)
    if checkpointing in ("full", "offloaded"):
        RECOMPUTING.add(inner)
    if kernels == "liger":
        apply_liger(model)
    elif kernels == "compiled":
        limits = torch._dynamo.config
        limits.recompile_limit = max(limits.recompile_limit, RECOMPILES)
    elif kernels == "fused":
        norm = inner.base_model.norm
        norm.forward = FusedNorm(norm.forward, norm)
    if checkpointing != "none" or kernels in ("compiled", "fused"):
        recomputation = Recomputation(checkpointing, draws=_draws(model))
        for layer in decoder_layers(model):
            layer.forward = LayerForward(
                layer.forward,
                layer,
                config=inner.config,
                recomputation=recomputation,
                kernels=kernels,
            )
    return text if checkpointing == "none" else f"{text}, {checkpointing} activation checkpointing"


def _choose_kernels(model: nn.Module, wanted: Kernels) -> tuple[Kernels, str]:
    """The kernels, and the same in words with the reason where it was left open."""
    if wanted == "fused" and not fused_supports(model):
        raise ModelError(
            f"there are no fused layers for the family {base_model(model).config.model_type}, or "
            "not for what this model's configuration asks of them",
            hint="set model.kernels=auto",
        )
    if wanted != "auto":
        return wanted, TITLES[wanted]
    if not next(base_model(model).parameters()).is_cuda:
        return "plain", TITLES["plain"]
    best = best_kernels(model)
    if best != "plain":
        return best, TITLES[best]
    reason = "it does not know the model" if has_liger() else "liger-kernel is not installed"
    return "plain", f"{TITLES['plain']} ({reason})"


def best_kernels(model: nn.Module) -> Kernels:
    """The fastest kernels that know the model, on a GPU."""
    if has_triton() and fused_supports(model):
        return "fused"
    return "liger" if liger_supports(model) else "plain"


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of a causal model, in order."""
    inner = base_model(model)
    count = inner.config.num_hidden_layers
    for module in inner.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return list(module)
    raise ModelError(
        f"{type(inner).__name__} has no list of its {count} layers, so they can neither be "
        "compiled nor computed again",
        hint="set batch.activation_checkpointing=none and model.kernels=plain",
    )


class LayerForward:
    """Stands in for the `forward` of one layer; `own` is the layer's."""

    def __init__(
        self,
        own: Callable[..., Any],
        layer: nn.Module,
        *,
        config: Any,
        recomputation: Recomputation,
        kernels: Kernels,
    ) -> None:
        self.own = own
        self._layer = layer
        self._config = config
        self._recomputation = recomputation
        self._kernels = kernels

    def __call__(self, *inputs: Any, **settings: Any) -> Any:
        if settings.get("use_cache") or any(settings.get(name) is not None for name in CACHES):
            return self.own(*inputs, **settings)
        if not (torch.is_grad_enabled() and self._layer.training):
            return self._fast(*inputs, **settings)
        if self._recomputation.is_selective and self._kernels == "compiled":
            return self._fast_and_recomputed(*inputs, **settings)
        if self._recomputation.is_selective and self._kernels == "fused":
            return self._fast(*inputs, **settings)  # it keeps little by itself
        return self._recomputation.run(self._attending, *inputs, **settings)

    def __deepcopy__(self, memo: dict[int, Any]) -> LayerForward:
        """A copy that belongs to the copy of the layer, which is being made."""
        return LayerForward(
            copy.deepcopy(self.own, memo),
            copy.deepcopy(self._layer, memo),
            config=copy.deepcopy(self._config, memo),
            recomputation=copy.deepcopy(self._recomputation, memo),
            kernels=self._kernels,
        )

    def _attending(self, *inputs: Any, **settings: Any) -> Any:
        """The layer with its attention set for documents, in the backward pass too."""
        with attention_to(settings.get("documents"), self._config):
            return self._fast(*inputs, **settings)

    @functools.cached_property
    def _fast(self) -> Callable[..., Any]:
        if self._kernels == "fused":
            return FusedForward(self.own, self._layer, lean=self._recomputation.is_selective)
        return torch.compile(self.own) if self._kernels == "compiled" else self.own

    @functools.cached_property
    def _fast_and_recomputed(self) -> Callable[..., Any]:
        """Compiled together with what is computed again, which the compiler then decides."""
        return torch.compile(functools.partial(self._recomputation.run, self.own))


def _draws(model: nn.Module) -> bool:
    """True where layers draw random numbers in training: any dropout."""
    settings = base_model(model).config.to_dict()
    rates = [value for name, value in settings.items() if "drop" in name]
    return any(isinstance(rate, float) and rate > 0 for rate in rates) or any(
        isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules()
    )
