"""AdamW with its states in CPU memory: weights and gradients alone stay on the GPU, half of it all.

For every float32 weight AdamW keeps two float32 numbers. Here they live in CPU memory, pinned where
the weights are on a CUDA device, and visit the device a bucket at a time: while one bucket is
updated, the next is on its way in and the last on its way out. The numbers are those of
`torch.optim.AdamW(fused=True)`, bit for bit, and so is the format of its `state_dict`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw
from torch.optim.optimizer import ParamsT

DEFAULT_BUCKET_BYTES = 256 << 20
MOMENTS = ("exp_avg", "exp_avg_sq")
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


@dataclass(slots=True)
class _Bucket:
    """Parameters that are updated together, with their moments on the device."""

    parameters: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]
    ready: torch.cuda.Event | None = None


class OffloadedAdamW(torch.optim.Optimizer):
    """AdamW (Loshchilov and Hutter, 1711.05101, algorithm 2) whose moments stay in CPU memory.

    Args:
        params: parameters or groups, as any torch optimizer takes them.
        bucket_bytes: size of the moments that visit the device at once; up to three buckets live
            there at a time.

    Moments are float32 whatever the dtype of a parameter; a parameter of another dtype is updated
    in float32 and rounded back. Parameters without a gradient are left alone.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        bucket_bytes: int = DEFAULT_BUCKET_BYTES,
    ) -> None:
        if lr < 0 or eps < 0 or weight_decay < 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                f"lr={lr}, betas={betas}, eps={eps}, weight_decay={weight_decay}; expected betas "
                "in [0, 1) and no negative number"
            )
        own = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**own, **_OF_TORCH})
        self._bucket_bytes = bucket_bytes

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient; the value of `closure`, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            with_gradient = [p for p in group["params"] if p.grad is not None]
            for parameter in with_gradient:
                self._start(parameter)
            for device in dict.fromkeys(parameter.device for parameter in with_gradient):
                here = [p for p in with_gradient if p.device == device]
                if device.type == "cuda":
                    self._update_on_cuda(here, group, device)
                else:
                    for bucket in self._buckets(here):
                        self._update(self._fetch(bucket, device), group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state of this class or of `torch.optim.AdamW`; the moments go to the CPU."""
        super().load_state_dict({**state_dict, "state": {}})
        parameters = [p for group in self.param_groups for p in group["params"]]
        numbers = [n for group in state_dict["param_groups"] for n in group["params"]]
        for number, parameter in zip(numbers, parameters, strict=True):
            if number in state_dict["state"]:
                stored = state_dict["state"][number]
                self.state[parameter] = {
                    "step": torch.as_tensor(stored["step"]).float().cpu(),
                    **{name: self._home(parameter, stored[name]) for name in MOMENTS},
                }

    def _start(self, parameter: Tensor) -> None:
        if not self.state[parameter]:
            self.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32),
                **{name: self._home(parameter, None) for name in MOMENTS},
            }

    @staticmethod
    def _home(parameter: Tensor, values: Tensor | None) -> Tensor:
        """A float32 CPU tensor of the parameter's layout, pinned where that speeds copies up."""
        moment = torch.zeros_like(
            parameter, dtype=torch.float32, device="cpu", pin_memory=parameter.is_cuda
        )
        return moment if values is None else moment.copy_(values)

    def _buckets(self, parameters: Iterable[Tensor]) -> Iterator[list[Tensor]]:
        bucket: list[Tensor] = []
        size = 0
        for parameter in parameters:
            bytes_here = 8 * parameter.numel()
            if bucket and size + bytes_here > self._bucket_bytes:
                yield bucket
                bucket, size = [], 0
            bucket.append(parameter)
            size += bytes_here
        if bucket:
            yield bucket

    def _fetch(self, parameters: list[Tensor], device: torch.device) -> _Bucket:
        first, second = (
            [self.state[p][name].to(device, non_blocking=True) for p in parameters]
            for name in MOMENTS
        )
        return _Bucket(parameters=parameters, first=first, second=second)

    def _update(self, bucket: _Bucket, group: dict[str, Any]) -> None:
        weights = [p if p.dtype == torch.float32 else p.float() for p in bucket.parameters]
        steps = [self.state[p]["step"] for p in bucket.parameters]
        on_device = [step.to(weight.device) for step, weight in zip(steps, weights, strict=True)]
        adamw(
            weights,
            [p.grad.float() for p in bucket.parameters if p.grad is not None],
            bucket.first,
            bucket.second,
            [],
            on_device,
            fused=True,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )
        for step, moved in zip(steps, on_device, strict=True):
            if moved is not step:
                step += 1
        for parameter, weight in zip(bucket.parameters, weights, strict=True):
            if weight is not parameter:
                parameter.copy_(weight)

    def _update_on_cuda(
        self, parameters: list[Tensor], group: dict[str, Any], device: torch.device
    ) -> None:
        """The update with copies in, arithmetic and copies out on three streams."""
        main = torch.cuda.current_stream(device)
        inward, outward = _stream(device), _stream(device)
        buckets = list(self._buckets(parameters))

        def fetch(number: int) -> _Bucket:
            with torch.cuda.stream(inward):
                bucket = self._fetch(buckets[number], device)
                bucket.ready = inward.record_event()
            for moment in (*bucket.first, *bucket.second):
                moment.record_stream(main)
                moment.record_stream(outward)
            return bucket

        stored: list[torch.cuda.Event] = []
        upcoming = fetch(0)
        for number in range(len(buckets)):
            bucket = upcoming
            if number + 1 < len(buckets):
                if stored:
                    stored[-1].synchronize()  # bounds how many buckets are on the device
                upcoming = fetch(number + 1)
            assert bucket.ready is not None
            main.wait_event(bucket.ready)
            self._update(bucket, group)
            outward.wait_stream(main)
            with torch.cuda.stream(outward):
                for name, moments in zip(MOMENTS, (bucket.first, bucket.second), strict=True):
                    for parameter, moment in zip(bucket.parameters, moments, strict=True):
                        self.state[parameter][name].copy_(moment, non_blocking=True)
                stored.append(outward.record_event())
        if stored:
            stored[-1].synchronize()  # a state that is read or saved next is whole


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
