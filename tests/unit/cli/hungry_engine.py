"""An engine for a process of its own that asks for more memory than any machine has."""

from __future__ import annotations

from typing import Any


class HungryEngine:
    """Takes weights, and then samples nothing."""

    weight_version = 0

    def load_weights(self, version: int, tensors: Any) -> None:
        for _ in tensors:
            pass
        self.weight_version = version

    def generate(self, requests: Any, sampling: Any) -> Any:
        import torch

        return torch.empty(1 << 46, dtype=torch.uint8)

    def sleep(self) -> None:
        pass

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass


class HungryBuild:
    """Stands where `EngineBuild` does."""

    def __init__(self, **settings: Any) -> None:
        pass

    def __call__(self) -> HungryEngine:
        return HungryEngine()
