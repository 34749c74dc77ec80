"""The bodies that trainer and inference server send each other: a JSON header and plain arrays.

    4 bytes: length of the header, little-endian │ header (JSON, UTF-8) │ arrays, one after another

The header lists the arrays by dtype and length. Numbers that matter bit by bit (ids, float32
log-probabilities, NaN among them) travel as arrays, so nothing is rounded and nothing is executed
on reading. Imports no torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workings.errors import EngineError
from workings.rollout.engine import Request, SamplingParams
from workings.types import Sample

ARRAYS = "arrays"
DTYPES = {"i4": np.dtype("<i4"), "f4": np.dtype("<f4")}
MAX_HEADER_BYTES = 1 << 28
LENGTH_BYTES = 4


def pack(header: Mapping[str, Any], arrays: Sequence[NDArray[Any]] = ()) -> bytes:
    """A body with this header and these int32 and float32 arrays (flattened).

    >>> header, (ids,) = unpack(pack({"a": 1}, [np.array([3, 4], dtype=np.int32)]))
    >>> header, ids.tolist()
    ({'a': 1}, [3, 4])
    """
    kinds = [array.dtype.str.lstrip("<=") for array in arrays]
    listed = [[kind, int(array.size)] for kind, array in zip(kinds, arrays, strict=True)]
    text = json.dumps({**header, ARRAYS: listed}).encode("utf-8")
    parts = [len(text).to_bytes(LENGTH_BYTES, "little"), text]
    for kind, array in zip(kinds, arrays, strict=True):
        parts.append(np.ascontiguousarray(array).astype(DTYPES[kind]).tobytes())
    return b"".join(parts)


def unpack(body: bytes) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """The header and the arrays of a body; EngineError for one that is not of this form."""
    length = int.from_bytes(body[:LENGTH_BYTES], "little")
    if len(body) < LENGTH_BYTES or length > min(MAX_HEADER_BYTES, len(body) - LENGTH_BYTES):
        raise _malformed(f"{len(body)} bytes with a header of {length}")
    start = LENGTH_BYTES + length
    try:
        header = json.loads(body[LENGTH_BYTES:start])
        listed = [(DTYPES[kind], int(size)) for kind, size in header.pop(ARRAYS)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _malformed(f"a header that cannot be read: {error!r}") from error
    sizes = [dtype.itemsize * size for dtype, size in listed]
    if any(size < 0 for size in sizes) or start + sum(sizes) != len(body):
        raise _malformed(f"arrays of {sum(sizes)} bytes in {len(body) - start}")
    arrays = []
    for (dtype, _), size in zip(listed, sizes, strict=True):
        arrays.append(np.frombuffer(body[start : start + size], dtype=dtype))
        start += size
    return header, arrays


def pack_requests(requests: Sequence[Request], sampling: SamplingParams, **more: Any) -> bytes:
    """Requests and their sampling parameters; `more` are further entries of the header."""
    rows = [
        [len(r.prompt_ids), len(r.prefix_ids), r.num_samples, r.seed, r.max_tokens]
        for r in requests
    ]
    ids = [token for r in requests for token in (*r.prompt_ids, *r.prefix_ids)]
    header = {**more, "requests": rows, "sampling": asdict(sampling)}
    return pack(header, [np.array(ids, dtype=np.int32)])


def unpack_requests(
    header: Mapping[str, Any], arrays: Sequence[NDArray[Any]]
) -> tuple[list[Request], SamplingParams]:
    """The requests of `pack_requests`; EngineError for what cannot be one."""
    try:
        rows, settings = header["requests"], dict(header["sampling"])
        (array,) = arrays
        ids = array.tolist()
        settings["stop"] = tuple(settings["stop"])
        sampling = SamplingParams(**settings)
        requests, start = [], 0
        for num_prompt, num_prefix, num_samples, seed, max_tokens in rows:
            middle = start + num_prompt
            requests.append(
                Request(
                    prompt_ids=tuple(ids[start:middle]),
                    prefix_ids=tuple(ids[middle : middle + num_prefix]),
                    num_samples=int(num_samples),
                    seed=int(seed),
                    max_tokens=None if max_tokens is None else int(max_tokens),
                )
            )
            start = middle + num_prefix
    except (ValueError, KeyError, TypeError) as error:
        raise _malformed(f"requests that cannot be read: {error!r}") from error
    if start != len(ids):
        raise _malformed(f"{len(ids)} ids for requests of {start}")
    return requests, sampling


def pack_samples(groups: Sequence[Sequence[Sample]]) -> bytes:
    """The samples of a batch."""
    samples = [sample for group in groups for sample in group]
    rows = [[len(s.ids), s.finish_reason, s.weight_version, s.text] for s in samples]
    header = {"groups": [len(group) for group in groups], "samples": rows}
    columns = (
        np.array([token for s in samples for token in s.ids], dtype=np.int32),
        np.array([value for s in samples for value in s.sampling_logprobs], dtype=np.float32),
        np.array([value for s in samples for value in s.kept_mass], dtype=np.float32),
    )
    return pack(header, columns)


def unpack_samples(body: bytes) -> list[list[Sample]]:
    """The samples of `pack_samples`; EngineError for what cannot be one."""
    header, arrays = unpack(body)
    try:
        ids, logprobs, kept_mass = (array.tolist() for array in arrays)
        samples, start = [], 0
        for length, reason, version, text in header["samples"]:
            span = slice(start, start + length)
            samples.append(
                Sample(
                    ids=ids[span],
                    sampling_logprobs=logprobs[span],
                    kept_mass=kept_mass[span],
                    text=text,
                    finish_reason=reason,
                    weight_version=int(version),
                )
            )
            start += length
        rows = iter(samples)
        groups = [[next(rows) for _ in range(count)] for count in header["groups"]]
    except (ValueError, KeyError, TypeError, StopIteration, RuntimeError) as error:
        raise _malformed(f"samples that cannot be read: {error!r}") from error
    if not len(ids) == len(logprobs) == len(kept_mass) == start or next(rows, None) is not None:
        raise _malformed(f"{len(ids)} ids, {len(logprobs)} logprobs for {start} tokens")
    return groups


def _malformed(what: str) -> EngineError:
    return EngineError(
        f"a message between trainer and inference server is malformed: {what}",
        hint="run the same version of workings on both sides",
    )
