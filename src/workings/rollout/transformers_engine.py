"""The engine that runs anywhere: any Hugging Face causal model, on a CPU or a GPU.

It samples from a module with its own decode loop and reads nothing but `SamplingParams`: no
`generate`, no generation_config. By default that module is the policy itself, so the weights are
always the trainer's and `load_weights` only records their version. With `share_weights=False` or a
`sampling_dtype` it is a private copy, which `load_weights` fills.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from workings.data.tokenizer import Tokenizer
from workings.errors import EngineError
from workings.models.bits_and_bytes import is_quantized, quantization_of
from workings.models.weights import base_model, has_adapter
from workings.rollout.causal_model import CausalModel, sampling_mode
from workings.rollout.engine import Pending, Request, SamplingParams
from workings.rollout.engine_errors import asleep, closed, mixed_weights
from workings.rollout.finished import Finished
from workings.rollout.generation import Generation
from workings.rollout.requests import check_request, describe_sampling
from workings.rollout.sampling_copy import SamplingCopy
from workings.rollout.select import CPU_BATCH
from workings.types import Sample


class TransformersEngine:
    """Keeps the `Engine` protocol on a Hugging Face causal model.

    Args:
        model: the policy, a plain or a peft model. The device it is on is the one sampled on.
        tokenizer: decodes completions and finds stop strings.
        eos_token_ids: every id that ends a completion.
        max_batch_size: most rows decoded at once; it bounds the key-value cache.
        share_weights: True samples from `model` itself; False from a private copy. None is True,
            unless a `sampling_dtype` needs a copy.
        sampling_dtype: dtype of the copy's linear layers, such as torch.bfloat16; None keeps the
            model's. What is sampled then differs a little from the trainer's distribution, which
            the trainer measures.

    Raises EngineError for a model that it cannot decode.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        *,
        eos_token_ids: Sequence[int],
        max_batch_size: int = CPU_BATCH,
        share_weights: bool | None = None,
        sampling_dtype: torch.dtype | None = None,
    ) -> None:
        if max_batch_size < 1:
            raise EngineError(f"max_batch_size={max_batch_size}; expected 1 or more")
        lowered = sampling_dtype is not None and sampling_dtype != base_model(model).dtype
        if share_weights and lowered:
            raise EngineError(
                f"share_weights=True samples from the policy's own weights "
                f"({base_model(model).dtype}), so sampling_dtype={sampling_dtype} cannot be used",
                hint="leave share_weights out",
            )
        self._tokenizer = tokenizer
        self._max_batch_size = max_batch_size
        self._copy: SamplingCopy | None = None
        if lowered or share_weights is False:
            held = quantization_of(base_model(model))
            if held != "none":
                raise EngineError(
                    f"a private copy of a policy whose base is held in {held} cannot be filled",
                    hint="share the policy's weights, or use engine.name=paged",
                )
            self._copy = SamplingCopy(model, sampling_dtype if lowered else None)
        # A private copy needs the policy no more, and may outlive it.
        self._policy = model if self._copy is None else None
        module = base_model(model) if self._copy is None else self._copy.module
        self._model: CausalModel | None = CausalModel(module)
        vocabulary = self._model.vocabulary
        unknown = [token_id for token_id in eos_token_ids if not 0 <= token_id < vocabulary]
        if unknown:
            raise EngineError(f"eos_token_ids={unknown} lie outside the vocabulary of {vocabulary}")
        self._eos_token_ids = tuple(eos_token_ids)
        self._weight_version = 0
        self._weights_whole = True
        self._asleep = False

    @property
    def weight_version(self) -> int:
        """Version given to the last `load_weights`; 0 for the weights it started with."""
        return self._weight_version

    def submit(self, requests: Sequence[Request], sampling: SamplingParams) -> Pending:
        """The batch, sampled at once: this engine works in the caller's thread.

        Raises EngineError for an empty prompt, an id outside the vocabulary, and a prompt that
        with `max_tokens` would not fit into the model's positions.
        """
        model = self._ready_model()
        if self._asleep:
            raise asleep()
        for request in requests:
            check_request(
                request, sampling, vocabulary=model.vocabulary, max_positions=model.max_positions
            )
        if not requests:
            return Finished([])
        with sampling_mode(model.module):
            generation = Generation(
                model,
                self._tokenizer,
                requests,
                sampling,
                eos_token_ids=self._eos_token_ids,
                max_batch_size=self._max_batch_size,
                weight_version=self._weight_version,
            )
            return Finished(generation.run())

    def collect(self, pending: Pending) -> list[list[Sample]]:
        """One list per request, in the order submitted."""
        if not isinstance(pending, Finished):
            raise EngineError(f"a {type(pending).__name__} was not submitted to this engine")
        return pending.samples

    def generate(self, requests: Sequence[Request], sampling: SamplingParams) -> list[list[Sample]]:
        """`collect(submit(...))`."""
        return self.collect(self.submit(requests, sampling))

    def load_weights(self, version: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Takes new weights, and their version.

        A private copy is filled. Where the weights are the policy's own, the tensors are compared
        with them by storage (up to the first merged or dequantised weight, which is new memory by
        nature), so that weights of some other model are refused instead of being ignored.
        """
        model = self._ready_model(whole=False)
        if self._copy is None:
            self._check_shared(model, tensors)
        else:
            self._weights_whole = False
            self._copy.load(tensors)
            self._weights_whole = True
        self._weight_version = version

    def sleep(self) -> None:
        """Moves a private copy to the CPU's memory; a shared model has nothing to give back."""
        self._asleep = True
        if self._copy is not None:
            self._copy.module.to("cpu")

    def wake(self) -> None:
        """Moves a private copy back."""
        if self._copy is not None:
            self._copy.module.to(self._ready_model(whole=False).device)
        self._asleep = False

    def close(self) -> None:
        """Lets go of the model and of a private copy."""
        self._model = None
        self._copy = None
        self._policy = None

    def describe(self, sampling: SamplingParams) -> str:
        """The settings in effect, in one line that says where they come from."""
        return describe_sampling(sampling, self._eos_token_ids)

    def _ready_model(self, *, whole: bool = True) -> CausalModel:
        if self._model is None:
            raise closed()
        if whole and not self._weights_whole:
            raise mixed_weights()
        return self._model

    def _check_shared(
        self, model: CausalModel, tensors: Iterable[tuple[str, torch.Tensor]]
    ) -> None:
        own = {
            name.replace(".base_layer.", "."): parameter
            for name, parameter in model.module.named_parameters(remove_duplicate=False)
        }
        own |= dict(model.module.named_buffers())
        adapted = has_adapter(self._policy)
        for name, tensor in tensors:
            mine = own.get(name)
            if mine is not None and mine.data_ptr() == tensor.data_ptr():
                continue
            if mine is not None and (
                is_quantized(mine) or (adapted and mine.shape == tensor.shape)
            ):
                return
            raise EngineError(
                f"the engine samples from the policy's own weights, but was given another {name}",
                hint="pass named_full_weights of the same policy, or share_weights=False",
            )
