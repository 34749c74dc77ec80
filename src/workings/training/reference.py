"""The reference: the policy as it was at the start, which a KL term or DPO compares with."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from workings.models.weights import has_adapter
from workings.training.compute_weights import compute_weights
from workings.training.forward import response_scores
from workings.training.packing import MicroBatch


class Reference:
    """The policy at the moment this is made; later training does not move it.

    A LoRA adapter that was never trained adds nothing to its base, so the base alone is the
    reference: the adapter is switched off while it scores. Otherwise the reference is a frozen
    copy, of the whole model under full fine-tuning, and under LoRA of an adapter that was trained
    before, over the same base weights.

    A run that resumes makes it before it restores its checkpoint.
    """

    def __init__(self, model: nn.Module) -> None:
        self._policy = model
        self._copy = None if adapter_adds_nothing(model) else _frozen_copy(model)

    @property
    def is_copy(self) -> bool:
        """True where what is trained is held a second time."""
        return self._copy is not None

    @torch.no_grad()
    def scores(
        self,
        microbatches: Sequence[MicroBatch],
        *,
        temperature: float = 1.0,
        autocast: torch.dtype | None = None,
    ) -> list[Tensor]:
        """Log-probabilities [B, T] of every microbatch under the reference, without gradient."""
        with self.model() as model, compute_weights(model, autocast):
            return [
                response_scores(model, batch, temperature=temperature, autocast=autocast).logprobs
                for batch in microbatches
            ]

    @contextlib.contextmanager
    def model(self) -> Iterator[nn.Module]:
        """The reference in evaluation mode, for the length of the block; not to be trained."""
        if self._copy is not None:
            yield self._copy
            return
        with adapter_off(self._policy) as model:
            yield model


@contextlib.contextmanager
def adapter_off(policy: nn.Module) -> Iterator[nn.Module]:
    """The policy in evaluation mode without its adapter, which is back after the block.

    Also after an error: adapter, mode and what may be trained are then as they were.
    """
    training = policy.training
    trainable = [(parameter, parameter.requires_grad) for parameter in policy.parameters()]
    policy.eval()
    try:
        with policy.disable_adapter():  # type: ignore[operator]
            yield policy
    finally:
        for parameter, required in trainable:
            parameter.requires_grad_(required)
        policy.train(training)


def adapter_adds_nothing(model: nn.Module) -> bool:
    """True for a LoRA policy that still is its base: every second factor is zero, as LoRA begins.

    False without an adapter, and where anything beside the adapter is trained.
    """
    if not has_adapter(model):
        return False
    named = list(model.named_parameters())
    beside = any(p.requires_grad and ".lora_" not in name for name, p in named)
    factors = [p for name, p in named if ".lora_B." in name]
    return bool(factors) and not beside and not any(bool(p.any()) for p in factors)


def _frozen_copy(model: nn.Module) -> nn.Module:
    """A copy that shares with `model` the parameters that are never trained, and nothing else."""
    shared = {id(p): p for p in model.parameters() if not p.requires_grad}
    return copy.deepcopy(model, shared).requires_grad_(False).eval()
