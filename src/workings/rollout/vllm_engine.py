"""vLLM in the trainer's process: sleep and wake, new weights at every step, our rules for samples.

vLLM is given an architecture and no weights: those come from the policy before the first sample,
as they do before every later one, so a policy from any source (a folder, a GGUF file, a checkpoint)
is sampled as it is. Its tokenizer, generation_config and detokenizer are not used.

    submit ── vllm_requests: one request per sample, with a seed ──> LLMEngine.add_request
    collect ── LLMEngine.step ──> vllm_batch: ids, logprobs, ends ──> samples
                       ├─ vllm_sampler: logprobs over the full vocabulary, kept mass
                       └─ vllm_min_tokens: EOS banned for as many tokens as asked
    load_weights ── vLLM's layerwise reload, prefix cache dropped

This file alone imports vLLM.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from workings.data.tokenizer import Tokenizer
from workings.errors import ConfigError, EngineError, said
from workings.models.adapter_weights import (
    adapter_rank,
    is_own_weight,
    named_adapter_weights,
    named_base_weights,
    write_adapter,
)
from workings.models.weights import base_model, has_adapter, named_full_weights
from workings.rollout.engine import Pending, Request, SamplingParams
from workings.rollout.engine_errors import asleep, closed
from workings.rollout.one_process import check_one_process
from workings.rollout.requests import check_request, describe_sampling
from workings.rollout.vllm_batch import VLLMBatch
from workings.rollout.vllm_min_tokens import correct_min_tokens
from workings.rollout.vllm_requests import check_sampling, sampling_arguments
from workings.rollout.vllm_sampler import ExactSampler
from workings.rollout.vllm_start import (
    ENVIRONMENT,
    global_state_kept,
    in_this_process,
    model_folder,
)
from workings.types import Sample

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Room that vLLM can make for an adapter."""
ADAPTER_DTYPES = (torch.bfloat16, torch.float16)
"""In which vLLM applies an adapter on a GPU."""
GRAPH_ROWS = 512
"""Most rows for which vLLM makes CUDA graphs unless it is told to."""


class VLLMEngine:
    """Keeps the `Engine` protocol on a `vllm.LLM` in this process, on the first visible card.

    Args:
        policy: a plain or a peft model; its architecture is vLLM's, its weights are the first.
        tokenizer: decodes completions and finds stop strings.
        eos_token_ids: every id that ends a completion.
        dtype: of vLLM's weights and arithmetic.
        max_batch_size: most completions decoded at once.
        gpu_memory_utilization: share of the card for weights, activations and cache of vLLM.
        max_model_len: most tokens of prompt and completion; None is what the model allows.
        enforce_eager: True makes no CUDA graphs: a faster start, slower samples.
        lora_by_adapter: True gives vLLM the base weights once and the adapter at every sync; it
            applies the adapter itself. False merges the adapter into what it is given.

    Raises ConfigError where vLLM is not installed, EngineError where it cannot start.
    """

    def __init__(
        self,
        policy: Any,
        tokenizer: Tokenizer,
        *,
        eos_token_ids: Sequence[int],
        dtype: torch.dtype = torch.bfloat16,
        max_batch_size: int = 256,
        gpu_memory_utilization: float = 0.7,
        max_model_len: int | None = None,
        enforce_eager: bool = False,
        lora_by_adapter: bool = False,
    ) -> None:
        model = base_model(policy)
        config = model.config.get_text_config()
        self._vocabulary = int(model.get_input_embeddings().weight.shape[0])
        _check_policy(policy, lora_by_adapter, dtype)
        self._policy = policy if lora_by_adapter else None
        self._tokenizer = tokenizer
        self._eos_token_ids = tuple(eos_token_ids)
        unknown = [i for i in self._eos_token_ids if not 0 <= i < self._vocabulary]
        if unknown:
            raise EngineError(
                f"eos_token_ids={unknown} lie outside the vocabulary of {self._vocabulary}"
            )
        self._max_positions = max_model_len or getattr(config, "max_position_embeddings", None)
        self._sleeps = torch.cuda.is_available()
        options: dict[str, Any] = {
            "max_num_seqs": max_batch_size,
            "gpu_memory_utilization": gpu_memory_utilization,
            "max_model_len": max_model_len,
            "enforce_eager": enforce_eager,
            "enable_sleep_mode": self._sleeps,
        }
        if max_batch_size > GRAPH_ROWS:
            options["compilation_config"] = {"max_cudagraph_capture_size": max_batch_size}
        if lora_by_adapter:
            rank = adapter_rank(policy)
            options |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": _room_for(rank)}
        base = named_base_weights(policy) if lora_by_adapter else None
        self._llm: Any = _start(model, options, weights=base, dtype=dtype)
        self._runner = self._llm.llm_engine.model_executor.driver_worker.worker.model_runner
        correct_min_tokens(self._runner.sampler, self._runner.device)
        self._runner.sampler = ExactSampler(self._runner.sampler)
        self._batches: list[VLLMBatch] = []
        self._num_submitted = 0
        self._num_adapters = 0
        self._adapter: Any = None
        self._weights_awake = self._cache_awake = True
        self._weights_whole = lora_by_adapter
        self._weight_version = 0
        self.load_weights(0, named_full_weights(policy))

    @property
    def weight_version(self) -> int:
        """Version given to the last `load_weights`; 0 for the weights it started with."""
        return self._weight_version

    def submit(self, requests: Sequence[Request], sampling: SamplingParams) -> Pending:
        """Hands the batch to vLLM, which samples it in `collect`: it works in this thread.

        Raises EngineError for what `check_request` and `vllm_requests.check_sampling` refuse.
        """
        engine = self._ready().llm_engine
        if not self._cache_awake:
            raise asleep()
        check_sampling(sampling)
        for request in requests:
            check_request(
                request,
                sampling,
                vocabulary=self._vocabulary,
                max_positions=self._max_positions,
            )
        batch = VLLMBatch(
            requests,
            sampling,
            self._tokenizer,
            eos_token_ids=self._eos_token_ids,
            weight_version=self._weight_version,
            name=str(self._num_submitted),
        )
        self._num_submitted += 1
        self._batches.append(batch)
        try:
            self._add(engine, batch, requests, sampling)
        except Exception as error:
            self._abort([batch])
            raise EngineError(f"vLLM did not take a request: {said(error)}") from error
        return batch

    def collect(self, pending: Pending) -> list[list[Sample]]:
        """One list per request, in the order submitted; other batches grow meanwhile."""
        if not isinstance(pending, VLLMBatch) or pending not in self._batches:
            raise EngineError(f"a {type(pending).__name__} was not submitted to this engine")
        try:
            while not pending.ready():
                if not self._ready().llm_engine.has_unfinished_requests():
                    raise EngineError("vLLM has lost a request: it has none, but not all are done")
                self._step()
        except BaseException:
            self._abort(list(self._batches))
            raise
        self._batches.remove(pending)
        return pending.samples()

    def generate(self, requests: Sequence[Request], sampling: SamplingParams) -> list[list[Sample]]:
        """`collect(submit(...))`."""
        return self.collect(self.submit(requests, sampling))

    def load_weights(self, version: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Takes new weights and drops the cached prefixes of the old ones.

        With `lora_by_adapter` they have to be the policy's own, whose adapter is read instead.
        Works while the engine sleeps: its weights are woken, its cache is not.
        """
        self._refuse_while_sampling("load_weights")
        if self._policy is None:
            self._load(tensors)
            self._done_loading(version)
            return
        for name, tensor in tensors:
            if not is_own_weight(self._policy, name, tensor):
                raise EngineError(
                    f"the engine reads the adapter of its own policy, but was given another {name}",
                    hint="pass named_full_weights of that policy, or set lora_by_adapter=False",
                )
            break
        self.load_adapter(version, named_adapter_weights(self._policy))

    def load_adapter(self, version: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Takes a new adapter, the tensors of `named_adapter_weights`, over the base it has.

        Raises EngineError for an engine that was not made with `lora_by_adapter`.
        """
        self._refuse_while_sampling("load_adapter")
        if self._policy is None:
            raise EngineError(
                "the engine was given an adapter, but takes full weights",
                hint="set engine.lora_by_adapter=true where the engine is made",
            )
        self._load_adapter(tensors)
        self._done_loading(version)

    def _done_loading(self, version: int) -> None:
        if not self._ready().reset_prefix_cache():
            raise EngineError(
                "vLLM kept cached prefixes of the old weights, since some blocks are in use",
                hint="collect every submitted batch before load_weights",
            )
        self._weight_version = version

    def sleep(self) -> None:
        """Gives back the cache and the weights; a base that is loaded once goes to CPU memory.

        Without `lora_by_adapter` the weights are dropped, so `load_weights` has to come before the
        next sample. Nothing is given back without CUDA.
        """
        self._refuse_while_sampling("sleep")
        if self._sleeps and self._cache_awake:
            torch.cuda.synchronize()
            keep_weights = self._policy is not None
            self._ready(whole=False).sleep(level=1 if keep_weights else 2)
            self._weights_awake = False
            self._weights_whole &= keep_weights
        self._cache_awake = False

    def wake(self) -> None:
        """Takes the memory again."""
        llm = self._ready(whole=False)
        if self._sleeps and not self._cache_awake:
            self._wake_weights()
            llm.wake_up(tags=["kv_cache"])
        self._cache_awake = True

    def close(self) -> None:
        """Shuts vLLM down and frees its memory."""
        llm, self._llm, self._runner, self._policy = self._llm, None, None, None
        if llm is not None:
            self._batches.clear()
            llm.llm_engine.engine_core.shutdown()
            del llm
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def describe(self, sampling: SamplingParams) -> str:
        """The settings in effect, in one line that says where they come from."""
        return describe_sampling(sampling, self._eos_token_ids)

    def _ready(self, *, whole: bool = True) -> Any:
        if self._llm is None:
            raise closed()
        if whole and not self._weights_whole:
            raise EngineError(
                "the engine has no whole set of weights: they were dropped by sleep(), or the last "
                "load_weights failed halfway",
                hint="call load_weights before sampling",
            )
        return self._llm

    def _refuse_while_sampling(self, call: str) -> None:
        if self._batches:
            raise EngineError(
                f"{call} was called while {len(self._batches)} submitted batches are not collected",
                hint="collect them first; their samples belong to the old weights",
            )

    def _add(
        self,
        engine: Any,
        batch: VLLMBatch,
        requests: Sequence[Request],
        sampling: SamplingParams,
    ) -> None:
        """Give vLLM a request for every sample."""
        names = iter(batch.names)
        for request in requests:
            ids = [*request.prompt_ids, *request.prefix_ids]
            prompt = {"type": "token", "prompt_token_ids": ids}
            for sample in range(request.num_samples):
                arguments = sampling_arguments(
                    request, sampling, sample=sample, eos_token_ids=self._eos_token_ids
                )
                parameters = _parameters(arguments, in_pieces=bool(sampling.stop))
                engine.add_request(next(names), prompt, parameters, lora_request=self._adapter)

    def _step(self) -> None:
        """One step of vLLM, for all batches."""
        engine = self._ready().llm_engine
        try:
            outputs = engine.step()
        except Exception as error:  # whatever vLLM raises, it cannot go on
            raise EngineError(f"vLLM failed while sampling: {said(error)}") from error
        owners = {batch.name: batch for batch in self._batches}
        ended = []
        for output in outputs:
            batch = owners[output.request_id.partition("-")[0]]
            if batch.take(output.request_id, output.outputs[0]):
                ended.append(output.request_id)
        if ended:
            engine.abort_request(ended)

    def _abort(self, batches: Sequence[VLLMBatch]) -> None:
        """Forget batches, so that an interrupted or failed one does not stay in vLLM."""
        names = [name for batch in batches for name in batch.names]
        self._batches = [batch for batch in self._batches if batch not in batches]
        with contextlib.suppress(Exception):  # the first error is the one to report
            self._llm.llm_engine.abort_request(names)

    def _load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        from vllm.model_executor.model_loader.reload import (
            finalize_layerwise_reload,
            initialize_layerwise_reload,
        )

        self._ready(whole=False)
        self._wake_weights()
        model, device = self._runner.get_model(), self._runner.device
        expected = {name for name, _ in model.named_parameters()}
        self._weights_whole = False
        try:
            with torch.no_grad(), torch.device(device):
                initialize_layerwise_reload(model)
                try:
                    loaded = model.load_weights(_on_device(tensors, device))
                finally:
                    finalize_layerwise_reload(model, self._runner.model_config)
                    if device.type == "cpu":
                        _pack_tied_head(model)
        except (AssertionError, KeyError, ValueError, RuntimeError) as error:
            raise EngineError(
                f"vLLM did not take the weights: {said(error)}",
                hint="pass models.weights.named_full_weights(policy) of the engine's own policy",
            ) from error
        missing = expected - loaded if loaded is not None else set()
        if missing:
            raise EngineError(
                f"the engine was not given {len(missing)} of its weights, such as {min(missing)}; "
                "sampling would mix old and new weights",
                hint="pass models.weights.named_full_weights(policy)",
            )
        self._weights_whole = True

    def _load_adapter(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Exchange the adapter: a new id each time, since vLLM never reads a known one again."""
        from vllm.lora.request import LoRARequest

        engine = self._ready().llm_engine
        self._wake_weights()
        if self._adapter is not None:
            engine.remove_lora(self._adapter.lora_int_id)
        self._num_adapters += 1
        name = f"workings-{self._num_adapters}"
        with tempfile.TemporaryDirectory(prefix="workings-adapter-") as folder:
            write_adapter(Path(folder), tensors)
            adapter = LoRARequest(name, self._num_adapters, folder)
            try:
                engine.add_lora(adapter)
            except Exception as error:
                raise EngineError(f"vLLM did not take the adapter: {said(error)}") from error
        self._adapter = adapter

    def _wake_weights(self) -> None:
        if not self._weights_awake:
            self._llm.wake_up(tags=["weights"])
            self._weights_awake = True


def vllm_class(wanted_by: str) -> Any:
    """`vllm.LLM`; ConfigError where vLLM is not installed, saying what wanted it."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        from vllm import LLM
    except ImportError as error:
        raise ConfigError(
            f"{wanted_by} needs vLLM, which is not installed or cannot be imported: {error}",
            hint="pip install 'workings[vllm]'; engine.name=auto needs nothing more",
        ) from error
    return LLM


def _start(
    model: Any,
    options: dict[str, Any],
    *,
    weights: Iterable[tuple[str, torch.Tensor]] | None = None,
    dtype: torch.dtype,
) -> Any:
    """A `vllm.LLM` of the model's architecture; its weights mean nothing unless some are given."""
    llm_class = vllm_class("engine.name=vllm")
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    with (
        model_folder(model, weights, dtype=dtype) as folder,
        in_this_process(),
        global_state_kept(),
    ):
        try:
            return llm_class(
                model=str(folder),
                dtype=str(dtype).removeprefix("torch."),
                load_format="dummy" if weights is None else "safetensors",
                skip_tokenizer_init=True,
                generation_config="vllm",
                logprobs_mode="processed_logprobs",
                enable_prefix_caching=True,
                seed=0,
                **options,
            )
        except Exception as error:
            raise EngineError(
                f"vLLM could not start: {said(error)}",
                hint="engine.gpu_memory_utilization is vLLM's share of the card beside the "
                "trainer; engine.max_model_len and engine.max_batch_size lower what it needs",
            ) from error


def _parameters(arguments: dict[str, Any], *, in_pieces: bool) -> Any:
    """vLLM's sampling parameters; whole completions cost it less to report than pieces."""
    from vllm import SamplingParams as VLLMSamplingParams
    from vllm.sampling_params import RequestOutputKind

    kind = RequestOutputKind.DELTA if in_pieces else RequestOutputKind.FINAL_ONLY
    return VLLMSamplingParams(**arguments, output_kind=kind)


def _check_policy(policy: Any, lora_by_adapter: bool, dtype: torch.dtype) -> None:
    if lora_by_adapter and not has_adapter(policy):
        raise EngineError(
            "lora_by_adapter=True needs a policy with an adapter",
            hint="set model.lora, or engine.lora_by_adapter=false",
        )
    if lora_by_adapter and torch.cuda.is_available() and dtype not in ADAPTER_DTYPES:
        raise EngineError(
            f"lora_by_adapter=True with {dtype}: vLLM's kernels for adapters take "
            f"{' or '.join(map(str, ADAPTER_DTYPES))}",
            hint="set engine.dtype=bfloat16, or engine.lora_by_adapter=false, which sends merged "
            "weights in any dtype",
        )
    check_one_process("vLLM in the trainer's process")


def _pack_tied_head(model: Any) -> None:
    """On a CPU vLLM multiplies by a packed copy, which a tied head makes of the embedding once."""
    head = getattr(model, "lm_head", None)
    if head is not None and model.config.tie_word_embeddings:
        head.quant_method.process_weights_after_loading(head)


def _on_device(
    tensors: Iterable[tuple[str, torch.Tensor]], device: torch.device
) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in tensors:
        yield name, tensor.detach().to(device)


def _room_for(rank: int) -> int:
    fitting = [room for room in LORA_RANKS if room >= rank]
    if not fitting:
        raise EngineError(
            f"an adapter of rank {rank} is too wide for vLLM, whose widest is {LORA_RANKS[-1]}",
            hint="set engine.lora_by_adapter=false, which sends merged weights",
        )
    return fitting[0]
