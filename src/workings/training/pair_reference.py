"""Log-probabilities of the reference: scored once and stored, or live in every step."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workings.data.encoding import EncodedPair
from workings.errors import CheckpointError, ConfigError
from workings.models.weights import gathered, has_adapter
from workings.training.packing import MicroBatch
from workings.training.pairs import score_microbatches

FILE_NAME = "reference.safetensors"
ScorePairs = Callable[[nn.Module, Sequence[EncodedPair]], Tensor]
"""`(model, pairs) -> [N, 2]` log-probabilities of chosen and rejected, without gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceKey:
    """What stored reference log-probabilities depend on; each a hash, or plain text.

    Attributes:
        model: hash of every weight, the adapter's too.
        template: hash of the prompt template and of the chat template.
        rows: hash of the token ids of all pairs.
        arithmetic: the dtype that the forward pass runs in, and `ld_alpha`.
    """

    model: str
    template: str
    rows: str
    arithmetic: str


def reference_key(
    model: nn.Module,
    pairs: Sequence[EncodedPair],
    *,
    template: str,
    autocast: torch.dtype | None,
    ld_alpha: float,
) -> ReferenceKey:
    """The key of these pairs under the model as it stands; reads every weight once."""
    return ReferenceKey(
        model=hash_of_weights(model),
        template=hashlib.sha256(template.encode()).hexdigest(),
        rows=_hash_of_rows(pairs),
        arithmetic=f"{autocast or next(model.parameters()).dtype}, ld_alpha {ld_alpha:g}",
    )


def hash_of_weights(model: nn.Module) -> str:
    """SHA-256 over names, dtypes, shapes and bytes of all weights and buffers."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        whole = gathered(tensor).cpu().contiguous()
        digest.update(f"{name} {whole.dtype} {tuple(whole.shape)}\n".encode())
        digest.update(whole.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def stored_reference(
    path: Path | None, key: ReferenceKey, score: Callable[[], Tensor], *, write: bool = True
) -> tuple[Tensor, bool]:
    """The reference's log-probabilities, [N, 2], and whether they were read instead of scored.

    Where `path` holds those of this key they are read; without a file they are scored, and stored
    unless `write` is False. A file of another key raises CheckpointError and names what differs.
    """
    if path is not None and path.is_file():
        return _read(path, key), True
    scores = score()
    if path is not None and write:
        _write(path, key, scores)
    return scores, False


class LiveReference:
    """The reference beside the policy: a frozen copy, or the policy with its adapter off.

    It is made before the first step of a run, from the weights that the run starts from.
    """

    def __init__(self, model: nn.Module, *, ld_alpha: float, autocast: torch.dtype | None) -> None:
        self._policy: Any = model
        self._copy: nn.Module | None = None
        self._ld_alpha = ld_alpha
        self._autocast = autocast
        if not has_adapter(model):
            self._copy = copy.deepcopy(model).requires_grad_(False).eval()
        elif not adapter_is_new(model):
            raise ConfigError(
                "reference=live switches the adapter off, but this adapter is trained already, and "
                "with it the policy is not the base model",
                hint="set reference=precomputed, which scores the adapter as it is now",
            )

    def of(self, microbatches: Sequence[MicroBatch]) -> Tensor:
        """[P, 2] log-probabilities of chosen and rejected of every pair of a step."""
        off = contextlib.nullcontext() if self._copy is not None else self._policy.disable_adapter()
        with off:
            return score_microbatches(
                self._policy if self._copy is None else self._copy,
                microbatches,
                ld_alpha=self._ld_alpha,
                autocast=self._autocast,
            ).discounted


def adapter_is_new(model: nn.Module) -> bool:
    """True where a LoRA policy still is its base model: the second factors are zero."""
    return not any(
        bool(parameter.any())
        for name, parameter in model.named_parameters()
        if ".lora_B." in name or ".lora_embedding_A." in name
    )


def _hash_of_rows(pairs: Sequence[EncodedPair]) -> str:
    digest = hashlib.sha256()
    for pair in pairs:
        ids = (pair.chosen.prompt.ids, pair.chosen.response_ids, pair.rejected.response_ids)
        digest.update(repr([list(part) for part in ids]).encode())
    return digest.hexdigest()


def _read(path: Path, key: ReferenceKey) -> Tensor:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            stored = json.loads((file.metadata() or {}).get("key", "{}"))
            scores: Tensor = file.get_tensor("logprobs")
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}", hint="start again under another name="
        ) from error
    wanted = asdict(key)
    differing = [name for name in wanted if stored.get(name) != wanted[name]]
    if differing:
        raise CheckpointError(
            f"the reference in {path} was scored with another {' and another '.join(differing)}",
            hint="resume with the settings of the run's own config.yaml, or start again under "
            "another name=",
        )
    return scores


def _write(path: Path, key: ReferenceKey, scores: Tensor) -> None:
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    save_file(
        {"logprobs": scores.cpu().contiguous()}, partial, metadata={"key": json.dumps(asdict(key))}
    )
    partial.replace(path)
