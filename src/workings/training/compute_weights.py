"""The layers' weights in the dtype of the arithmetic, for the length of a step.

Trained weights are float32. Autocast casts each of them at every use and lets the residual stream
between layers grow to float32; here a step makes one copy of the layers' weights in bfloat16, which
all its microbatches share. The stream is bfloat16 then, as it is in the engines that sample, and
half the bytes move between kernels. Gradients of a copy are added to the float32 gradient of its
weight after every microbatch, so accumulation loses nothing; where a step is but one microbatch,
they can stay as they are.

Copies of weights that take the same input lie one behind the other in memory, so that fused layers
can multiply by all of them at once.

The embedding and the head stay float32: `token_logprobs` casts the head itself and sums its
gradient in float32, and the embedding's output is cast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from workings.models.weights import base_model

_COMPUTING: WeakKeyDictionary[nn.Module, torch.dtype] = WeakKeyDictionary()


@contextmanager
def compute_weights(
    model: nn.Module, dtype: torch.dtype | None, *, widens: bool = True
) -> Iterator[None]:
    """Inside the block the layers of a model on a GPU compute with copies of weights in `dtype`.

    Weights get their gradients in their own dtype, or, without `widens`, in `dtype`, where nothing
    is added to them.

    The backward pass has to be inside too. Nothing happens where `dtype` is None, on a CPU, inside
    another such block, and for sharded weights, whose owner casts them.
    """
    inner = base_model(model)
    on_gpu = any(parameter.is_cuda for parameter in inner.parameters())
    if dtype is None or not on_gpu or _is_sharded(inner) or computing_dtype(model) is not None:
        yield
        return
    with weights_in(model, dtype, widens=widens):
        yield


@contextmanager
def weights_in(model: nn.Module, dtype: torch.dtype, *, widens: bool = True) -> Iterator[None]:
    """`compute_weights` on any device."""
    inner = base_model(model)
    copies = _KEPT.get(inner)
    if copies is None or not copies.fit(inner, dtype):
        copies = _KEPT[inner] = _Copies(inner, dtype)
    hook = inner.get_input_embeddings().register_forward_hook(_cast_output(dtype))
    _COMPUTING[inner] = dtype
    try:
        copies.enter(widens=widens)
        yield
    finally:
        copies.leave()
        hook.remove()
        del _COMPUTING[inner]


def computing_dtype(model: nn.Module) -> torch.dtype | None:
    """The dtype of the block that the model is in; None outside of one."""
    return _COMPUTING.get(base_model(model))


def copied_weights(model: nn.Module, number_bytes: int) -> list[nn.Parameter]:
    """The weights that a block on a GPU copies to numbers of so many bytes, each once."""
    inner = base_model(model)
    if _is_sharded(inner):
        return []
    found = [owner._parameters[name] for _, owner, name in _places(inner, number_bytes)]
    return list({id(weight): weight for weight in found if weight is not None}.values())


def _is_sharded(inner: nn.Module) -> bool:
    return any(hasattr(type(parameter), "full_tensor") for parameter in inner.parameters())


Place = tuple[str, nn.Module, str]
"""The name of the module around its owner, the owner, and the weight's name there."""


def _places(inner: Any, number_bytes: int) -> list[Place]:
    """Where the weights stand that a block replaces: wider numbers, not of embedding or head."""
    ends = (inner.get_input_embeddings(), inner.get_output_embeddings())
    kept = {id(p) for module in ends if module is not None for p in module.parameters()}
    return [
        (path.rpartition(".")[0], module, name)
        for path, module in inner.named_modules()
        for name, parameter in module._parameters.items()
        if parameter is not None
        and id(parameter) not in kept
        and parameter.is_floating_point()
        and parameter.element_size() > number_bytes
    ]


class _Copies:
    """The copies of a model's weights: made once, with memory only inside a block."""

    def __init__(self, inner: Any, dtype: torch.dtype) -> None:
        self._places = _places(inner, dtype.itemsize)
        self._made_for = _identity(inner, dtype)
        self._delivery = _Delivery()
        self._masters: dict[int, nn.Parameter] = {}
        alike: dict[tuple[str, torch.Size, torch.device], list[nn.Parameter]] = {}
        for around, owner, name in self._places:
            master = owner._parameters[name]
            assert master is not None, "places hold weights"
            if id(master) not in self._masters:
                self._masters[id(master)] = master
                alike.setdefault((around, master.shape[1:], master.device), []).append(master)
        values: dict[int, Tensor] = {}
        self._memory: list[tuple[torch.UntypedStorage, int]] = []
        for (_, rest, device), group in alike.items():
            rows = [master.shape[0] for master in group]
            table = torch.empty((sum(rows), *rest), dtype=dtype, device=device)
            values |= zip(map(id, group), torch.split(table, rows), strict=True)
            self._memory.append((table.untyped_storage(), table.untyped_storage().nbytes()))
        self._copies = {}
        for key, master in self._masters.items():
            copy = nn.Parameter(values[key], requires_grad=master.requires_grad)
            if master.requires_grad:
                deliver = self._delivery.to(master)
                copy.register_post_accumulate_grad_hook(deliver)  # type: ignore[no-untyped-call]
            self._copies[key] = copy
        self._release()

    def fit(self, inner: Any, dtype: torch.dtype) -> bool:
        """True where the model still has the weights that these are copies of."""
        return self._made_for == _identity(inner, dtype)

    def enter(self, *, widens: bool) -> None:
        """Put copies of the present weights into the model."""
        self._delivery.widens = widens
        for storage, size in self._memory:
            storage.resize_(size)
        if self._copies:  # weights may be in the dtype already
            with torch.no_grad():
                torch._foreach_copy_(list(self._copies.values()), list(self._masters.values()))
        for _, owner, name in self._places:
            owner._parameters[name] = self._copies[id(owner._parameters[name])]

    def leave(self) -> None:
        """Put the weights back, and give back the copies' memory."""
        masters = {id(copy): self._masters[key] for key, copy in self._copies.items()}
        for _, owner, name in self._places:
            present = owner._parameters[name]
            owner._parameters[name] = masters.get(id(present), present)
        self._release()

    def _release(self) -> None:
        for storage, _ in self._memory:
            storage.resize_(0)


_KEPT: WeakKeyDictionary[nn.Module, _Copies] = WeakKeyDictionary()


def _identity(inner: Any, dtype: torch.dtype) -> tuple[object, ...]:
    """Changes where copies would have to be made anew."""
    weights = tuple(
        (id(weight), weight.requires_grad, weight.dtype, weight.device)
        for weight in inner.parameters()
    )
    return dtype, weights


class _Delivery:
    """How gradients get from copies to weights."""

    widens = True

    def to(self, master: Tensor) -> Callable[[Tensor], None]:
        """A hook that moves a copy's gradient to `master` and calls its own hooks."""

        def deliver(copy: Tensor) -> None:
            grad, copy.grad = copy.grad, None
            assert grad is not None, "called when a gradient has been accumulated"
            if master.grad is None and self.widens:
                master.grad = grad.to(master.dtype)
            elif master.grad is None:
                master.grad_dtype = None  # any will do
                master.grad = grad
            elif master.grad.dtype == master.dtype:
                master.grad.add_(grad)
            else:
                master.grad = master.grad.to(master.dtype).add_(grad)
            for hook in tuple((master._post_accumulate_grad_hooks or {}).values()):
                hook(master)

        return deliver


def _cast_output(dtype: torch.dtype) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    return lambda module, arguments, output: output.to(dtype)
