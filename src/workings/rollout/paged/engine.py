"""The paged engine: an inference engine in the trainer's process, made for rollouts.

    requests ── batch.py ──> scheduler.py plans, runner.py launches, batch.py reads ──> samples

Prompts are processed once for all their samples, which share the pages of the cache; a decode step
is one CUDA graph with sampling inside; the processor plans ahead of the device. Weights are copied
from the trainer in place. It samples the models of `architecture.py` and refuses others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Event
from typing import Any

import torch

from workings.data.tokenizer import Tokenizer
from workings.errors import EngineError, EngineMemoryError
from workings.models.weights import base_model, named_full_weights
from workings.rollout.engine import Pending, Request, SamplingParams
from workings.rollout.engine_errors import asleep, closed, mixed_weights
from workings.rollout.finished import Finished
from workings.rollout.paged.architecture import architecture_of, rotation_tables
from workings.rollout.paged.batch import Batch
from workings.rollout.paged.cache import PAGE_SIZE, PagedCache, PagePool
from workings.rollout.paged.model import PagedModel
from workings.rollout.paged.runner import Runner
from workings.rollout.paged.scheduler import Scheduler
from workings.rollout.paged.weights import PagedWeights
from workings.rollout.requests import check_request, describe_sampling
from workings.rollout.select import rows_at_once
from workings.types import Sample

PREFILL_TOKENS = 16384
STEPS_PER_LAUNCH = 8
CPU_CACHE_BYTES = 1 << 30
KEPT_FREE = 1 << 30
"""Device memory that the cache never takes: graphs, logits and prefill need some."""


class PagedEngine:
    """Keeps the `Engine` protocol with its own decoder, cache and kernels.

    Args:
        model: the policy, a plain or a peft model of a known family. The engine lives on its
            device and keeps a copy of its weights, fused and in its own dtype.
        tokenizer: decodes completions and finds stop strings.
        eos_token_ids: every id that ends a completion.
        max_batch_size: most sequences at once; None is 1,024 on CUDA and 128 on a CPU.
        dtype: of weights and cache; None is bfloat16 on CUDA, and the model's own on a CPU.
        memory_utilization: share of the device's memory that the cache may take.
        cache_tokens: tokens that the cache holds, in place of what `memory_utilization` allows.
        max_length: most tokens of a prompt with its completion; None is the model's positions.
        use_graphs: False launches every operation of a step by itself on CUDA too.

    Raises EngineError for a model that it does not compute exactly.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        *,
        eos_token_ids: Sequence[int],
        max_batch_size: int | None = None,
        dtype: torch.dtype | None = None,
        memory_utilization: float = 0.5,
        cache_tokens: int | None = None,
        max_length: int | None = None,
        use_graphs: bool = True,
    ) -> None:
        source = base_model(model)
        self._device: torch.device = source.get_input_embeddings().weight.device
        on_cuda = self._device.type == "cuda"
        self._num_slots = rows_at_once(max_batch_size, "paged", self._device.type)
        if self._num_slots < 1:
            raise EngineError(f"max_batch_size={max_batch_size}; expected 1 or more")
        if not 0.0 < memory_utilization <= 1.0:
            raise EngineError(f"memory_utilization={memory_utilization}; expected above 0, up to 1")
        shape = self._architecture = architecture_of(model)
        unknown = [token_id for token_id in eos_token_ids if not 0 <= token_id < shape.vocabulary]
        if unknown:
            raise EngineError(
                f"eos_token_ids={unknown} lie outside the vocabulary of {shape.vocabulary}"
            )
        self._tokenizer = tokenizer
        self._eos_token_ids = tuple(dict.fromkeys(eos_token_ids))
        self._dtype = dtype or (torch.bfloat16 if on_cuda else source.dtype)
        self._max_length = min(max_length or shape.max_positions, shape.max_positions)
        self._memory_utilization = memory_utilization
        self._cache_tokens = cache_tokens
        self._use_graphs = use_graphs
        weights = PagedWeights(shape, dtype=self._dtype, device=self._device)
        cos, sin = rotation_tables(model, shape, self._device)
        self._model: PagedModel | None = PagedModel(shape, weights, cos, sin)
        self._cache: PagedCache | None = None
        self._runner: Runner | None = None
        self._most_pages = 0
        self._weight_version = 0
        self._weights_whole = False
        self._asleep = False
        self._abort = Event()
        self.load_weights(0, named_full_weights(model))

    @property
    def weight_version(self) -> int:
        """Version given to the last `load_weights`; 0 for the weights it started with."""
        return self._weight_version

    @property
    def cache_bytes(self) -> int:
        """Memory of the key-value cache while the engine is awake; 0 before the first call."""
        return 0 if self._cache is None else self._cache.num_bytes

    def submit(self, requests: Sequence[Request], sampling: SamplingParams) -> Pending:
        """The batch, sampled at once: this engine works in the caller's thread.

        Raises EngineError for an empty prompt, an id outside the vocabulary, a sequence that fits
        neither the model's positions nor the cache, and logits that are not finite.
        """
        model = self._ready_model()
        for request in requests:
            check_request(
                request,
                sampling,
                vocabulary=self._architecture.vocabulary,
                max_positions=self._max_length,
            )
        if not requests:
            return Finished([])
        self._abort.clear()
        runner, cache = self._prepare(model, requests, sampling)
        runner.begin(sampling)
        scheduler = Scheduler(
            PagePool(cache.num_pages),
            num_slots=self._num_slots,
            max_pages=-(-self._max_length // cache.page_size),
            page_size=cache.page_size,
            prefill_tokens=PREFILL_TOKENS,
        )
        batch = Batch(
            runner,
            scheduler,
            self._tokenizer,
            requests,
            sampling,
            eos_token_ids=self._eos_token_ids,
            num_slots=self._num_slots,
            max_steps=STEPS_PER_LAUNCH,
            weight_version=self._weight_version,
            aborted=self._abort.is_set,
        )
        return Finished(batch.run())

    def collect(self, pending: Pending) -> list[list[Sample]]:
        """One list per request, in the order submitted."""
        if not isinstance(pending, Finished):
            raise EngineError(f"a {type(pending).__name__} was not submitted to this engine")
        return pending.samples

    def generate(self, requests: Sequence[Request], sampling: SamplingParams) -> list[list[Sample]]:
        """`collect(submit(...))`."""
        return self.collect(self.submit(requests, sampling))

    def abort(self) -> None:
        """Ends the call that is under way in another thread, at its next launch."""
        self._abort.set()

    def load_weights(self, version: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copies a whole set of weights into the engine's own, in place; also while it sleeps."""
        if self._model is None:
            raise closed()
        self._weights_whole = False
        self._model.weights.load(tensors)
        self._weights_whole = True
        self._weight_version = version

    def sleep(self) -> None:
        """Gives the memory of the cache back; weights and captured graphs stay."""
        self._asleep = True
        if self._cache is not None:
            self._cache.sleep()

    def wake(self) -> None:
        """Takes the memory of the cache again; EngineError where there is too little."""
        if self._cache is not None:
            self._cache.wake()
        self._asleep = False

    def close(self) -> None:
        """Gives everything back."""
        if self._cache is not None:
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            self._cache.free()
        self._cache = self._runner = self._model = None

    def describe(self, sampling: SamplingParams) -> str:
        """The settings in effect, in one line that says where they come from."""
        return describe_sampling(sampling, self._eos_token_ids)

    def _ready_model(self) -> PagedModel:
        if self._model is None:
            raise closed()
        if self._asleep:
            raise asleep()
        if not self._weights_whole:
            raise mixed_weights()
        return self._model

    def _prepare(
        self, model: PagedModel, requests: Sequence[Request], sampling: SamplingParams
    ) -> tuple[Runner, PagedCache]:
        """Runner and cache, made anew where the cache is too small for what is asked.

        The cache is as large as this call can use and the memory allows.
        """
        lengths = [
            len(request.prompt_ids) + len(request.prefix_ids) + request.limit(sampling)
            for request in requests
        ]
        needed = -(-max(lengths) // PAGE_SIZE)
        num_sequences = sum(request.num_samples for request in requests)
        wanted = needed * min(self._num_slots, num_sequences)
        if self._runner is not None and self._cache is not None:
            if self._cache.num_pages >= min(wanted, self._most_pages):
                return self._runner, self._cache
            self._cache.free()
            self._cache = self._runner = None
        self._most_pages = self._allowed_pages()
        if needed > self._most_pages:
            raise EngineMemoryError(
                f"a prompt with its completion may take {max(lengths)} tokens; the key-value cache "
                f"holds {self._most_pages * PAGE_SIZE}",
                hint="raise engine.gpu_memory_utilization or lower sampling.max_tokens",
            )
        cache = PagedCache(
            self._architecture,
            num_pages=min(wanted, self._most_pages),
            dtype=self._dtype,
            device=self._device,
        )
        runner = Runner(
            model,
            cache,
            num_slots=self._num_slots,
            max_pages=-(-self._max_length // PAGE_SIZE),
            eos_token_ids=self._eos_token_ids,
            max_steps=STEPS_PER_LAUNCH,
            device=self._device,
            use_graphs=self._use_graphs,
        )
        self._cache, self._runner = cache, runner
        return runner, cache

    def _allowed_pages(self) -> int:
        """Most pages that the memory allows."""
        if self._cache_tokens is not None:
            return self._cache_tokens // PAGE_SIZE
        budget = CPU_CACHE_BYTES
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
            free, total = torch.cuda.mem_get_info(self._device)
            budget = max(0, min(int(self._memory_utilization * total), free - KEPT_FREE))
        return budget // (self._architecture.cache_bytes_per_token(self._dtype) * PAGE_SIZE)
