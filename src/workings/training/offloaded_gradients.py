"""Gradients in CPU memory: each leaves the GPU as soon as the backward pass has made it.

A gradient is as large as its weight, and the whole set is needed before the first weight may move
(the norm that a step is clipped by). So the sum over microbatches is kept in float32 CPU memory,
pinned where the weights are on a CUDA device, and visits the device for every addition: what is
added, and in what order, is the same as without. Copies run on a stream of their own beside the
backward pass, which waits for them only where too many gradients are on their way out.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

MOST_UNDERWAY_BYTES = 512 << 20


class OffloadedGradients:
    """The accumulated gradients of some parameters, by parameter.

    While this object lives, a backward pass leaves `grad` of these parameters at None and adds to
    what is held here; `clear` begins the next step.

    Args:
        parameters: contiguous; their gradients are taken in float32.
        most_underway_bytes: gradients that may still be on the device while the backward pass goes
            on.
    """

    def __init__(
        self, parameters: Sequence[Tensor], *, most_underway_bytes: int = MOST_UNDERWAY_BYTES
    ) -> None:
        self._parameters = tuple(parameters)
        self._most_underway_bytes = most_underway_bytes
        self._homes: dict[Tensor, Tensor] = {}
        self._norms: dict[Tensor, Tensor] = {}
        self._underway: deque[tuple[torch.cuda.Event, int]] = deque()
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        # A hook outlives an optimizer that is dropped; through a weak reference it then does
        # nothing, and keeps nothing alive.
        owner = weakref.ref(self)

        def take(parameter: Tensor) -> None:
            gradients = owner()
            if gradients is not None:
                gradients._take(parameter)

        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(take)  # type: ignore[no-untyped-call]

    def __contains__(self, parameter: Tensor) -> bool:
        """True where a gradient of this step is held."""
        return parameter in self._norms

    def __getitem__(self, parameter: Tensor) -> Tensor:
        """The accumulated gradient, float32 in CPU memory; a later backward pass changes it."""
        if parameter not in self._norms:
            raise KeyError("no gradient of this parameter is held")
        return self._homes[parameter]

    def clear(self) -> None:
        """Forget all gradients; their memory is kept for the next step."""
        self._norms.clear()

    def complete(self) -> Tensor:
        """L2 norm over all parameters; those without a gradient get one of zeros.

        A scalar on the parameters' device. Whatever is queued on the current stream afterwards
        finds every gradient in its place.
        """
        for parameter in self._parameters:
            if parameter not in self._norms:
                self._home(parameter).zero_()
                self._norms[parameter] = torch.zeros((), device=parameter.device)
        for device, stream in self._streams.items():
            torch.cuda.current_stream(device).wait_stream(stream)
        self._underway.clear()
        first = self._parameters[0].device
        norms = [self._norms[parameter].to(first) for parameter in self._parameters]
        return _norm(torch.stack(norms))

    def _take(self, parameter: Tensor) -> None:
        gradient = parameter.grad
        if gradient is None:
            return
        parameter.grad = None
        gradient = gradient.detach().float()
        if parameter.is_cuda:
            self._take_from_cuda(parameter, gradient)
        else:
            self._norms[parameter] = self._add(parameter, gradient)

    def _add(self, parameter: Tensor, gradient: Tensor) -> Tensor:
        """Norm of the sum so far, which is in its home (once the current stream is there)."""
        home = self._home(parameter)
        if parameter in self._norms:
            gradient = home.to(gradient.device, non_blocking=True).add_(gradient)
        home.copy_(gradient, non_blocking=True)
        return _norm(gradient)

    def _take_from_cuda(self, parameter: Tensor, gradient: Tensor) -> None:
        device = gradient.device
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream = self._streams[device]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            norm = self._add(parameter, gradient)
            done = stream.record_event()
        gradient.record_stream(stream)
        self._norms[parameter] = norm
        self._underway.append((done, gradient.nbytes))
        while sum(size for _, size in self._underway) > self._most_underway_bytes:
            self._underway.popleft()[0].synchronize()

    def _home(self, parameter: Tensor) -> Tensor:
        if parameter not in self._homes:
            self._homes[parameter] = torch.empty(
                parameter.shape, dtype=torch.float32, pin_memory=parameter.is_cuda
            )
        return self._homes[parameter]


def _norm(values: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(values)
    return norm
