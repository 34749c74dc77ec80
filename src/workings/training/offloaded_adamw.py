"""AdamW whose state is in CPU memory: the GPU holds weights and gradients, and nothing else lasts.

For every weight AdamW keeps two float32 moments, and where the weights are bfloat16 a float32
master beside them: an update of the size that reinforcement learning makes is lost when it is
rounded to bfloat16, and in the master it is not. All of it lives in CPU memory, pinned where the
weights are on a CUDA device, and visits the device a bucket at a time: while one bucket is updated,
the next is on its way in and the last on its way out. The numbers are those of
`torch.optim.AdamW(fused=True)` on float32 weights, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.adamw import adamw
from torch.optim.optimizer import ParamsT

from workings.training.offloaded_gradients import OffloadedGradients

DEFAULT_BUCKET_BYTES = 128 << 20
MOMENTS, MASTER = ("exp_avg", "exp_avg_sq"), "master"
# Three buckets: one comes in, one is updated, one goes out.
_NUM_STAGES = 3
# Slices begin at multiples of this, so that vectorised kernels treat them as they do the whole.
_ALIGNMENT = 1024
# What a group of `torch.optim.AdamW(fused=True)` says besides, so that it can load a state of ours.
_OF_TORCH = {
    "amsgrad": False,
    "maximize": False,
    "foreach": None,
    "capturable": False,
    "differentiable": False,
    "fused": True,
    "decoupled_weight_decay": True,
}


class _Slice(NamedTuple):
    """Some consecutive entries of a parameter."""

    parameter: Tensor
    start: int
    stop: int

    def of(self, tensor: Tensor) -> Tensor:
        """The same entries of a contiguous tensor of the parameter's shape, as a 1-D view."""
        return tensor.detach().view(-1)[self.start : self.stop]


@dataclass(slots=True)
class _Visitors:
    """The slices of a bucket with all that their update needs, on the parameters' device."""

    slices: Sequence[_Slice]
    weights: list[Tensor]
    gradients: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]


class OffloadedAdamW(torch.optim.Optimizer):
    """AdamW (Loshchilov and Hutter, 1711.05101, algorithm 2) whose state stays in CPU memory.

    Args:
        params: parameters or groups, as any torch optimizer takes them; contiguous. A float32
            parameter is its own master. One of a narrower dtype gets a float32 master, of which it
            is the rounded copy after every step; its gradient is accumulated in float32
            (`Tensor.grad_dtype`).
        offload_gradients: keep the accumulated gradients in CPU memory too; then `clip_gradients`
            has to be called before every step.
        bucket_bytes: size of what visits the device at once; three buckets have room there.

    State by parameter: "step", "exp_avg", "exp_avg_sq" and, where there is one, "master", all
    float32. Parameters without a gradient are left alone.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        offload_gradients: bool = False,
        bucket_bytes: int = DEFAULT_BUCKET_BYTES,
    ) -> None:
        if lr < 0 or eps < 0 or weight_decay < 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                f"lr={lr}, betas={betas}, eps={eps}, weight_decay={weight_decay}; expected betas "
                "in [0, 1) and no negative number"
            )
        own = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**own, **_OF_TORCH})
        parameters = self._parameters()
        for parameter in parameters:
            if parameter.dtype.itemsize > 4 or not parameter.is_contiguous():
                raise ValueError(
                    f"a parameter of shape {tuple(parameter.shape)} is {parameter.dtype} with "
                    f"strides {parameter.stride()}; expected a contiguous one of 32 bits or less"
                )
            if _has_master(parameter):
                parameter.grad_dtype = torch.float32
        # At least one aligned slice of all that a parameter may bring has to fit.
        self._bucket_bytes = max(bucket_bytes, 16 * _ALIGNMENT)
        self._streams: dict[torch.device, tuple[torch.cuda.Stream, torch.cuda.Stream]] = {}
        self._scale: Tensor | None = None
        self._gradients = OffloadedGradients(parameters) if offload_gradients else None

    @property
    def offloads_gradients(self) -> bool:
        """True where `grad` of the parameters stays None and the gradients are held here."""
        return self._gradients is not None

    def clip_gradients(self, max_norm: float) -> Tensor:
        """L2 norm of the offloaded gradients; `step` will take them clipped to `max_norm`.

        0 leaves them alone. As `torch.nn.utils.clip_grads_with_norm_`, with the scaling done when a
        gradient visits the device. Parameters without a gradient count as zeros.
        """
        if self._gradients is None:
            raise RuntimeError("the gradients are not offloaded; clip them where they are")
        norm = self._gradients.complete()
        scale = (max_norm / (norm + 1e-6)).clamp(max=1.0) if max_norm > 0 else None
        self._scale = scale
        return norm

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients."""
        super().zero_grad(set_to_none)
        self._scale = None
        if self._gradients is not None:
            self._gradients.clear()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient; the value of `closure`, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            moving = [p for p in group["params"] if self._has_gradient(p)]
            for parameter in moving:
                self._start(parameter)
                if parameter.grad is not None and not parameter.grad.is_contiguous():
                    parameter.grad = parameter.grad.contiguous()
            for device in dict.fromkeys(parameter.device for parameter in moving):
                buckets = list(self._buckets([p for p in moving if p.device == device]))
                if device.type == "cuda":
                    self._update_on_cuda(buckets, group, device)
                else:
                    for bucket in buckets:
                        self._update(self._at_home(bucket), group)
            for parameter in moving:
                self.state[parameter]["step"] += 1
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state of this class or of `torch.optim.AdamW`, copied into CPU memory.

        A bfloat16 parameter without a master in the state is its own new master. ValueError for
        masters of parameters that are float32 here.
        """
        super().load_state_dict({**state_dict, "state": {}})
        numbers = [n for group in state_dict["param_groups"] for n in group["params"]]
        for number, parameter in zip(numbers, self._parameters(), strict=True):
            stored = state_dict["state"].get(number)
            if stored is None:
                continue
            if MASTER in stored and not _has_master(parameter):
                raise ValueError(
                    "the state holds float32 masters of weights that are float32 themselves here"
                )
            names = (*MOMENTS, MASTER) if MASTER in stored else MOMENTS
            self.state[parameter] = {
                "step": torch.as_tensor(stored["step"]).float().cpu().clone(),
                **{name: _home(parameter, stored[name]) for name in names},
            }
            if _has_master(parameter) and MASTER not in stored:
                self.state[parameter][MASTER] = _home(parameter, parameter)

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _has_gradient(self, parameter: Tensor) -> bool:
        if self._gradients is not None:
            return parameter in self._gradients
        return parameter.grad is not None

    def _start(self, parameter: Tensor) -> None:
        if self.state[parameter]:
            return
        state = {name: _home(parameter, None) for name in MOMENTS}
        if _has_master(parameter):
            state[MASTER] = _home(parameter, parameter)
        self.state[parameter] = {"step": torch.zeros((), dtype=torch.float32), **state}

    def _names(self, parameter: Tensor) -> tuple[str, ...]:
        return (*MOMENTS, MASTER) if _has_master(parameter) else MOMENTS

    def _buckets(self, parameters: Sequence[Tensor]) -> Iterator[list[_Slice]]:
        """Slices in order, each bucket as many bytes as allowed; large parameters are cut."""
        bucket: list[_Slice] = []
        room = self._bucket_bytes
        for parameter in parameters:
            size = 4 * (len(self._names(parameter)) + self.offloads_gradients)
            start = 0
            while start < parameter.numel():
                rest = parameter.numel() - start
                fits = room // size // 4 * 4
                if fits < rest:
                    fits = fits // _ALIGNMENT * _ALIGNMENT
                if fits == 0:
                    yield bucket
                    bucket, room = [], self._bucket_bytes
                    continue
                stop = start + min(fits, rest)
                bucket.append(_Slice(parameter, start, stop))
                room -= size * _padded(stop - start)
                start = stop
        if bucket:
            yield bucket

    def _at_home(self, bucket: Sequence[_Slice]) -> _Visitors:
        """The bucket where it lies, for parameters in CPU memory."""
        states = [self.state[cut.parameter] for cut in bucket]
        pairs = list(zip(bucket, states, strict=True))
        return _Visitors(
            slices=bucket,
            weights=[cut.of(state.get(MASTER, cut.parameter)) for cut, state in pairs],
            gradients=[self._gradient(cut) for cut in bucket],
            first=[cut.of(state[MOMENTS[0]]) for cut, state in pairs],
            second=[cut.of(state[MOMENTS[1]]) for cut, state in pairs],
        )

    def _gradient(self, cut: _Slice) -> Tensor:
        if self._gradients is not None:
            return cut.of(self._gradients[cut.parameter])
        gradient = cut.parameter.grad
        assert gradient is not None
        assert gradient.dtype == torch.float32
        return cut.of(gradient)

    def _update(self, visitors: _Visitors, group: dict[str, Any]) -> None:
        if self._scale is not None:
            torch._foreach_mul_(visitors.gradients, self._scale)
        # Every slice counts its own step: the update adds 1 to the tensor it is given.
        counts = [float(self.state[cut.parameter]["step"]) for cut in visitors.slices]
        device = visitors.weights[0].device
        steps = torch.tensor(counts, dtype=torch.float32).to(device, non_blocking=True)
        adamw(
            visitors.weights,
            visitors.gradients,
            visitors.first,
            visitors.second,
            [],
            list(steps.unbind()),
            fused=True,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )
        for cut, weight in zip(visitors.slices, visitors.weights, strict=True):
            if _has_master(cut.parameter):
                cut.of(cut.parameter).copy_(weight)

    def _update_on_cuda(
        self, buckets: Sequence[list[_Slice]], group: dict[str, Any], device: torch.device
    ) -> None:
        """The update with copies in, arithmetic and copies out on three streams.

        The room for visitors belongs to the current stream, which begins before the copies in and
        ends after the copies out.
        """
        if device not in self._streams:
            self._streams[device] = (_stream(device), _stream(device))
        main, (inward, outward) = torch.cuda.current_stream(device), self._streams[device]
        stages = [
            _Stage(torch.empty(self._bucket_bytes // 4, device=device))
            for _ in buckets[:_NUM_STAGES]
        ]
        inward.wait_stream(main)
        for number, bucket in enumerate(buckets):
            stage = stages[number % _NUM_STAGES]
            with torch.cuda.stream(inward):
                if stage.empty_again is not None:
                    inward.wait_event(stage.empty_again)
                visitors = self._fetch(bucket, stage)
                ready = inward.record_event()
            main.wait_event(ready)
            self._update(visitors, group)
            outward.wait_stream(main)
            with torch.cuda.stream(outward):
                self._return(visitors)
                stage.empty_again = outward.record_event()
        main.wait_stream(outward)
        outward.synchronize()  # a state that is read or saved next is whole

    def _fetch(self, bucket: Sequence[_Slice], stage: _Stage) -> _Visitors:
        """The bucket on the device, once the current stream is there."""
        stage.clear()
        visitors = _Visitors(slices=bucket, weights=[], gradients=[], first=[], second=[])
        for cut in bucket:
            state = self.state[cut.parameter]
            visitors.first.append(stage.admit(cut.of(state[MOMENTS[0]])))
            visitors.second.append(stage.admit(cut.of(state[MOMENTS[1]])))
            master = state.get(MASTER)
            visitors.weights.append(
                cut.of(cut.parameter) if master is None else stage.admit(cut.of(master))
            )
            gradient = self._gradient(cut)
            visitors.gradients.append(gradient if gradient.is_cuda else stage.admit(gradient))
        return visitors

    def _return(self, visitors: _Visitors) -> None:
        for number, cut in enumerate(visitors.slices):
            state = self.state[cut.parameter]
            cut.of(state[MOMENTS[0]]).copy_(visitors.first[number], non_blocking=True)
            cut.of(state[MOMENTS[1]]).copy_(visitors.second[number], non_blocking=True)
            if MASTER in state:
                cut.of(state[MASTER]).copy_(visitors.weights[number], non_blocking=True)


@dataclass(slots=True)
class _Stage:
    """Room on the device for one bucket, used again and again."""

    room: Tensor
    used: int = 0
    empty_again: torch.cuda.Event | None = None

    def clear(self) -> None:
        self.used = 0

    def admit(self, values: Tensor) -> Tensor:
        """A copy of the 1-D values, under way on the current stream."""
        place = self.room[self.used : self.used + values.numel()]
        self.used += _padded(values.numel())
        return place.copy_(values, non_blocking=True)


def _padded(numel: int) -> int:
    """Entries rounded up, so that the next array begins at a multiple of 16 bytes."""
    return -(-numel // 4) * 4


def _has_master(parameter: Tensor) -> bool:
    return parameter.dtype != torch.float32


def _home(parameter: Tensor, values: Tensor | None) -> Tensor:
    """A float32 CPU tensor of the parameter's shape, pinned where that speeds copies up."""
    home = torch.zeros(parameter.shape, dtype=torch.float32, pin_memory=parameter.is_cuda)
    return home if values is None else home.copy_(values.detach())


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
