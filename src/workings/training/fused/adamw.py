"""AdamW whose step is one kernel, which reads gradients in half precision as well.

A step of torch's fused AdamW wants gradients in the dtype of the weights. Where a step is one
microbatch, the gradients of half-precision copies of the weights hold all there is to know, and
widening them first would only be another pass over memory. The numbers and the saved state are
those of `torch.optim.AdamW`, whose own step is used wherever the kernel does not apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from workings.objectives.logprobs import HALF, has_triton


class FusedAdamW(torch.optim.AdamW):
    """`torch.optim.AdamW` (2.11 and later) with a faster step on a GPU.

    As with torch's fused optimizers, two scalars on the device steer a step while they are set:
    `grad_scale`, by which gradients are divided, and `found_inf`, which is 1 where the step is to
    leave everything as it is. Gradients themselves are not changed.
    """

    grad_scale: Tensor | None
    found_inf: Tensor | None

    def __init__(
        self, groups: Iterable[Any], *, lr: float, betas: tuple[float, float], eps: float
    ) -> None:
        super().__init__(groups, lr=lr, betas=betas, eps=eps, fused=True)
        self.grad_scale = self.found_inf = None

    @property
    def takes_half(self) -> bool:
        """True where gradients of float32 weights may be in half precision."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        return (
            has_triton()
            and len({p.device for p in parameters}) == 1
            and all(
                p.is_cuda and p.dtype == torch.float32 and p.is_contiguous() for p in parameters
            )
        )

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update of all weights that have a gradient; what the closure returned."""
        if not self.takes_half:
            return super().step(closure)
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            parameters = [p for p in group["params"] if p.grad is not None]
            update(
                parameters,
                [parameter.grad.contiguous() for parameter in parameters],
                [self._state_of(parameter) for parameter in parameters],
                lr=float(group["lr"]),
                beta1=beta1,
                beta2=beta2,
                eps=group["eps"],
                weight_decay=group["weight_decay"],
                grad_scale=self.grad_scale,
                found_inf=self.found_inf,
            )
        return loss

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


def update(
    parameters: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[dict[str, Tensor]],
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """AdamW (1711.05101, algorithm 2) in place, on weights of one device.

    Args:
        parameters: float32, contiguous.
        grads: of the same shapes, contiguous, float32 or in half precision.
        states: `step`, a float32 scalar, and `exp_avg` and `exp_avg_sq`, float32, of each.
        grad_scale: scalar by which gradients are divided; None is 1.
        found_inf: scalar; where it is 1, nothing is changed. None is 0.
    """
    from workings.training.fused import adamw_triton

    kinds: dict[tuple[torch.dtype, bool], list[int]] = {}
    for index, (parameter, grad, state) in enumerate(zip(parameters, grads, states, strict=True)):
        moments = (state["exp_avg"], state["exp_avg_sq"])
        aligned = adamw_triton.is_aligned(parameter, grad, *moments)
        kinds.setdefault((grad.dtype, aligned), []).append(index)
    for (_, aligned), indices in kinds.items():
        chosen = [states[index] for index in indices]
        adamw_triton.update(
            [parameters[index] for index in indices],
            [grads[index] for index in indices],
            [state["exp_avg"] for state in chosen],
            [state["exp_avg_sq"] for state in chosen],
            _corrections([state["step"] for state in chosen], beta1, beta2, found_inf),
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            weight_decay=weight_decay,
            grad_scale=grad_scale,
            found_inf=found_inf,
            aligned=aligned,
        )


def _corrections(
    steps: list[Tensor], beta1: float, beta2: float, found_inf: Tensor | None
) -> Tensor:
    """Counts a step; [tensors, 2] is what moments are multiplied by for having begun at zero.

    As in torch, the powers are taken in double precision: 1 - beta^t is small at first. In a step
    that is skipped t may still be 0, and what comes of it is not used.
    """
    counts = 1.0 if found_inf is None else [1.0 - found_inf] * len(steps)
    torch._foreach_add_(steps, counts)
    passed = torch.stack(steps).double()
    corrections = torch.stack([1 / (1 - beta1**passed), (1 - beta2**passed).rsqrt()], dim=1)
    return corrections.float()


def norm_of(grads: Sequence[Tensor]) -> Tensor:
    """L2 norm over gradients of any dtypes, a scalar; those in half precision summed in float32."""
    halves = [grad for grad in grads if grad.dtype in HALF]
    others = [grad for grad in grads if grad.dtype not in HALF]
    if not halves:
        return torch.nn.utils.get_total_norm(others)
    norms = list(torch._foreach_norm(halves, 2, dtype=torch.float32))
    if others:
        norms.append(torch.nn.utils.get_total_norm(others).float())
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm
