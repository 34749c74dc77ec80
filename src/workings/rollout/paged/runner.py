"""Work for the device: plans in, what was sampled out, and no waiting in between.

A decode step is captured once for every size of batch and kind of sampling as a CUDA graph, and
replayed; a batch between two sizes is filled up with rows that have nothing to do. Without CUDA
the same step runs call by call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from workings.rollout.engine import SamplingParams
from workings.rollout.paged.cache import PagedCache
from workings.rollout.paged.kernels.attention import splits_for
from workings.rollout.paged.model import PagedModel
from workings.rollout.paged.prefill import pack_pieces, prefill
from workings.rollout.paged.scheduler import Plan
from workings.rollout.paged.slots import Slots, upload
from workings.rollout.paged.step import DecodeStep, Records, Settings, StepKind, mode_of

SMALL_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256)
BATCH_STEP = 64
"""Above the small ones, a graph for every multiple of this."""


def batch_sizes(most: int) -> tuple[int, ...]:
    """Sizes of batch that have a graph, the last one `most`.

    >>> batch_sizes(20), batch_sizes(300)[-2:]
    ((1, 2, 4, 8, 16, 20), (256, 300))
    """
    sizes = [*SMALL_BATCHES, *range(SMALL_BATCHES[-1] + BATCH_STEP, most, BATCH_STEP)]
    return (*(size for size in sizes if size < most), most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A plan that the device works on.

    Attributes:
        plan: what it does.
        sampled: int32 [3, steps, rows] in the processor's memory, valid once `done` is.
        done: event behind the last operation; None where everything has run.
    """

    plan: Plan
    sampled: torch.Tensor
    done: torch.cuda.Event | None

    def result(self) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
        """(ids, logprobs, kept mass), [steps, rows] each, once the device has them.

        An id of -2 was not sampled: the sequence had ended. -1: its logits were not finite.
        """
        if self.done is not None:
            self.done.synchronize()
        ids, logprobs, mass = self.sampled.numpy()
        return ids, logprobs.view(np.float32), mass.view(np.float32)


class Runner:
    """The device's side of the engine.

    Args:
        max_steps: most decode steps of a launch.
        use_graphs: False runs every step call by call on CUDA too.
    """

    def __init__(
        self,
        model: PagedModel,
        cache: PagedCache,
        *,
        num_slots: int,
        max_pages: int,
        eos_token_ids: tuple[int, ...],
        max_steps: int,
        device: torch.device,
        use_graphs: bool = True,
    ) -> None:
        self._model = model
        self._cache = cache
        self._device = device
        self._slots = Slots(num_slots, max_pages, device)
        self._settings = Settings(eos_token_ids, device)
        self._records = Records(max_steps, num_slots, device)
        self._step = DecodeStep(model, cache, self._slots, self._settings)
        self._on_cuda = device.type == "cuda"
        self._use_graphs = use_graphs and self._on_cuda
        self._sizes = batch_sizes(num_slots)
        self._rows = torch.full((num_slots,), self._slots.padding, dtype=torch.int32, device=device)
        self._graphs: dict[StepKind, torch.cuda.CUDAGraph] = {}
        self._graph_pool: Any = None
        self._multiprocessors = (
            torch.cuda.get_device_properties(device).multi_processor_count if self._on_cuda else 1
        )
        self._mode = mode_of(SamplingParams())
        self._bans_eos = False

    def begin(self, sampling: SamplingParams) -> None:
        """Empties the slots and takes over the parameters of a call."""
        self._slots.clear()
        self._settings.set(sampling)
        self._mode = mode_of(sampling)
        self._bans_eos = sampling.min_tokens > 0 and len(self._settings.eos) > 0

    @torch.no_grad()
    def launch(self, plan: Plan) -> Launch:
        """Hands the plan to the device and returns without waiting for it."""
        self._slots.enter_pages(plan.entries)
        if plan.pieces:
            prefill(self._model, self._cache, pack_pieces(plan.pieces, self._device))
        if plan.copies.shape[1]:
            self._cache.copy_pages(*upload(plan.copies, self._device))
        self._slots.start(plan.started)
        num_rows = len(plan.rows)
        if num_rows:
            self._decode(plan)
        sampled = self._records.table[:, : plan.num_steps, :num_rows]
        if not self._on_cuda:
            return Launch(plan=plan, sampled=sampled.clone(), done=None)
        host = torch.empty(sampled.shape, dtype=torch.int32, pin_memory=True)
        host.copy_(sampled, non_blocking=True)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        return Launch(plan=plan, sampled=host, done=done)

    def _decode(self, plan: Plan) -> None:
        num_rows = len(plan.rows)
        self._records.cursor.zero_()
        if not self._use_graphs:
            rows = upload(plan.rows, self._device)
            kind = StepKind(num_rows, self._mode, self._bans_eos)
            most = int(self._slots.lengths.max()) + plan.num_steps if not self._on_cuda else None
            num_pages = None if most is None else -(-most // self._cache.page_size)
            for _ in range(plan.num_steps):
                self._step.run(
                    rows,
                    self._records,
                    kind,
                    num_splits=self._splits(num_rows),
                    num_pages=num_pages,
                )
            return
        size = next(size for size in self._sizes if size >= num_rows)
        graph = self._graph(StepKind(size, self._mode, self._bans_eos))
        self._rows[:size].fill_(self._slots.padding)
        self._rows[:num_rows].copy_(upload(plan.rows, self._device))
        for _ in range(plan.num_steps):
            graph.replay()

    def _graph(self, kind: StepKind) -> torch.cuda.CUDAGraph:
        """The captured step of a kind, captured now if it has not been needed before."""
        if kind not in self._graphs:
            rows = torch.full_like(self._rows[: kind.rows], self._slots.padding)
            splits = self._splits(kind.rows)
            # Once outside of the capture, with rows that do nothing: kernels are compiled there.
            self._step.run(rows, self._records, kind, num_splits=splits)
            self._records.cursor.zero_()
            torch.cuda.synchronize(self._device)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._graph_pool):
                self._step.run(self._rows[: kind.rows], self._records, kind, num_splits=splits)
            self._graph_pool = self._graph_pool or graph.pool()
            self._graphs[kind] = graph
        return self._graphs[kind]

    def _splits(self, num_rows: int) -> int:
        return splits_for(num_rows, self._model.architecture.num_kv_heads, self._multiprocessors)
