"""Activations of a layer: kept, or computed again in the backward pass.

- none: everything that the backward pass reads is kept.
- selective: outputs of matrix products and of attention are kept, the cheap rest is computed again.
- full: a layer's input is kept, and the layer computed a second time.
- offloaded: as full, with the inputs in pinned CPU memory; copies run beside the arithmetic.

The gradients are the same; random numbers of dropout are drawn again as they were.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from workings.training.attention import OPERATOR

Checkpointing = Literal["none", "selective", "full", "offloaded"]

aten = torch.ops.aten
SAVED = [
    *(aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default),
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
    aten._flash_attention_forward.default,
    OPERATOR,
]
"""Operators whose outputs selective checkpointing keeps."""


RECOMPUTING: WeakSet[nn.Module] = WeakSet()
"""Models whose layers are computed a second time, for the sake of memory."""


class Recomputation:
    """Runs layers so that their activations are kept as `how` says; one object for a model."""

    def __init__(self, how: Checkpointing, *, draws: bool) -> None:
        """`draws`: the layers draw random numbers, so the state of the generators is kept too."""
        self._how = how
        self._draws = draws
        self._inputs = OffloadedInputs() if how == "offloaded" else None

    def __deepcopy__(self, memo: dict[int, Any]) -> Recomputation:
        return Recomputation(self._how, draws=self._draws)

    @property
    def is_selective(self) -> bool:
        """True where single operators are kept.

        In compiled layers only the compiler sees them, and fused ones keep little by themselves.
        """
        return self._how == "selective"

    def run(self, function: Callable[..., Any], *inputs: Any, **settings: Any) -> Any:
        """`function(*inputs, **settings)`; `inputs` are what a backward pass starts again from."""
        if self._how == "none":
            return function(*inputs, **settings)
        if self._how == "selective":
            settings["context_fn"] = functools.partial(create_selective_checkpoint_contexts, SAVED)
        hooks: AbstractContextManager[Any] = nullcontext()
        if self._inputs is not None:
            hooks = saved_tensors_hooks(self._inputs.put, self._inputs.get)
        with hooks:
            return checkpoint(
                function,
                *inputs,
                use_reentrant=False,
                preserve_rng_state=self._draws,
                **settings,
            )


class OffloadedInputs:
    """The inputs of checkpointed layers, in CPU memory between forward and backward pass.

    The copy to the CPU starts as soon as the layer does, on a stream of its own. In the backward
    pass the input of the layer before is fetched while a layer is computed.
    """

    def __init__(self) -> None:
        self._order: list[weakref.ref[_Visitor]] = []
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def put(self, tensor: Tensor) -> _Visitor | Tensor:
        """What stands for the tensor until `get`; an empty one stands for itself."""
        if tensor.numel() == 0:
            return tensor
        visitor = _Visitor(tensor, self._stream(tensor.device))
        self._order = [other for other in self._order if other() is not None]
        self._order.append(weakref.ref(visitor))
        return visitor

    def get(self, visitor: _Visitor | Tensor) -> Tensor:
        """The tensor, on the device it came from."""
        if isinstance(visitor, Tensor):
            return visitor
        tensor = visitor.fetched()
        before = [other for reference in self._order if (other := reference()) is not None]
        place = next(index for index, other in enumerate(before) if other is visitor)
        if place > 0:
            before[place - 1].fetch()
        return tensor

    def _stream(self, device: torch.device) -> torch.cuda.Stream | None:
        if device.type != "cuda":
            return None
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        return self._streams[device]


class _Visitor:
    """One tensor, at home in CPU memory."""

    def __init__(self, tensor: Tensor, stream: torch.cuda.Stream | None) -> None:
        self._device = tensor.device
        self._stream = stream
        self._fetched: Tensor | None = None
        self._ready: torch.cuda.Event | None = None
        self._home = torch.empty_like(tensor, device="cpu", pin_memory=stream is not None)
        if stream is None:
            self._home.copy_(tensor)
            return
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            self._home.copy_(tensor, non_blocking=True)
        tensor.record_stream(stream)

    def fetch(self) -> None:
        """Start the copy to the device, if it has not been started."""
        if self._fetched is not None:
            return
        self._fetched = torch.empty_like(self._home, device=self._device)
        if self._stream is None:
            self._fetched.copy_(self._home)
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            self._fetched.copy_(self._home, non_blocking=True)
            self._ready = self._stream.record_event()
        self._fetched.record_stream(self._stream)

    def fetched(self) -> Tensor:
        """The tensor on the device; arithmetic that follows waits for its copy."""
        self.fetch()
        assert self._fetched is not None, "fetch has just begun the copy"
        if self._ready is not None:
            torch.cuda.current_stream(self._device).wait_event(self._ready)
        tensor, self._fetched = self._fetched, None
        return tensor
