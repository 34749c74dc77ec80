"""Log-probabilities of the reference: scored once and stored, or live in every step."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from workings.data.encoding import EncodedPair
from workings.data.sampler import rank_share
from workings.errors import CheckpointError
from workings.models.weights import gathered
from workings.training.distributed import Ranks
from workings.training.packing import MicroBatch
from workings.training.pairs import PackPairs, score_microbatches, score_pairs
from workings.training.reference import Reference

FILE_NAME = "reference.safetensors"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReference:
    """The reference's log-probabilities of every pair, [N, 2] and [M, 2]; or one that is live."""

    validation: Tensor
    train: Tensor | None = None
    live: Reference | None = None
    ld_alpha: float = 1.0
    autocast: torch.dtype | None = None

    def of_step(self, chosen: Sequence[int], microbatches: Sequence[MicroBatch]) -> Tensor:
        """[P, 2] of the pairs of a step, `chosen` of all: read, or scored now."""
        if self.train is not None:
            return self.train[list(chosen)]
        assert self.live is not None
        with self.live.model() as model:
            return score_microbatches(
                model, microbatches, ld_alpha=self.ld_alpha, autocast=self.autocast
            ).discounted


def build_reference(
    model: nn.Module,
    pairs: Sequence[EncodedPair],
    validation: Sequence[EncodedPair],
    *,
    live: bool,
    file: Path | None,
    template: str,
    pack_rows: PackPairs,
    ld_alpha: float,
    autocast: torch.dtype | None,
    log: Callable[[str], None],
    ranks: Ranks,
) -> PairReference:
    """The reference of a run, `model` as it stands: what the run starts from.

    Precomputed scores of training and validation pairs are shared out over ranks and stored in
    `file` by the first. A live reference scores the validation pairs at once, since they come again
    and again.
    """
    started = time.perf_counter()
    device = next(model.parameters()).device

    def score(wanted: Sequence[EncodedPair]) -> Tensor:
        own = rank_share(wanted, rank=ranks.rank, num_ranks=ranks.size)
        found = score_pairs(model, own, pack_rows=pack_rows, ld_alpha=ld_alpha, autocast=autocast)
        return ranks.all_concat(found.discounted.reshape(-1)).view(-1, 2)

    if live:
        reference = Reference(model)
        log(
            "reference: scored in every step by "
            + ("a frozen copy" if reference.is_copy else "the base, with the adapter off")
        )
        return PairReference(
            validation=score(validation), live=reference, ld_alpha=ld_alpha, autocast=autocast
        )
    every = [*pairs, *validation]
    key = reference_key(model, every, template=template, autocast=autocast, ld_alpha=ld_alpha)
    scores, was_read = stored_reference(file, key, lambda: score(every), write=ranks.is_main)
    ranks.barrier()
    log(
        f"reference: {len(every)} pairs "
        + ("read from the run's folder" if was_read else "scored")
        + f" in {time.perf_counter() - started:.1f} s"
    )
    scores = scores.to(device)
    return PairReference(train=scores[: len(pairs)], validation=scores[len(pairs) :])


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
