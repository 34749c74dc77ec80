"""Which rows lie together: few microbatches, no padding where none is needed."""

from __future__ import annotations

import math
import random

import pytest
import torch

from workings.training.packing import TrainRow, pack


def row(key, length, *, group=None, prompt=3):
    return TrainRow(
        key=key,
        group=key if group is None else group,
        prompt_ids=[7] * prompt,
        response_ids=[8] * (length - prompt),
        mask=[True] * (length - prompt),
    )


def log_normal_rows(count, longest, seed=0):
    source = random.Random(seed)
    lengths = [min(longest, max(8, int(source.lognormvariate(4.5, 0.9)))) for _ in range(count)]
    return [row(key, length) for key, length in enumerate(lengths)]


def test_documents_have_no_padding_and_fill_few_microbatches():
    rows = log_normal_rows(200, 1000)
    total = sum(len(r.prompt_ids) + len(r.response_ids) for r in rows)
    batches = pack(rows, layout="documents", max_tokens=2048)
    assert sum(batch.input_ids.numel() for batch in batches) == total
    assert len(batches) == math.ceil(total / 2048)
    sizes = [batch.input_ids.numel() for batch in batches]
    assert max(sizes) < 1.15 * min(sizes)
    for batch in batches:
        assert batch.attention_mask is None
        assert batch.documents.pieces[-1] == batch.input_ids.shape[1]
        assert batch.documents.sizes[0] == batch.documents.pieces.diff().max()


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_lanes_are_spread_over_microbatches_of_like_size(layout):
    rows = log_normal_rows(60, 200)
    batches = pack(rows, layout=layout, max_tokens=1500)
    greedy = pack(rows, layout=layout, max_tokens=max(b.input_ids.numel() for b in batches))
    assert len(greedy) == len(batches)  # a smaller budget would have needed more
    assert all(batch.input_ids.numel() <= 1500 for batch in batches)


def test_rows_of_one_length_get_a_lane_each_instead_of_documents():
    (batch,) = pack([row(k, 50) for k in range(6)], layout="documents", max_tokens=1000)
    assert batch.documents is None
    assert batch.attention_mask is None
    assert batch.input_ids.shape == (6, 50)
    (batch,) = pack([row(k, 50 + 5 * k) for k in range(6)], layout="documents", max_tokens=1000)
    assert batch.documents is not None


def test_shared_prompts_stand_in_front_and_are_computed_once():
    rows = [row(k, 10 + k, group=k // 3, prompt=5) for k in range(6)]
    (batch,) = pack(rows, layout="shared_documents", max_tokens=1000)
    documents = batch.documents
    assert batch.input_ids.numel() == 2 * 5 + sum(len(r.response_ids) for r in rows)
    assert documents.prompts.tolist() == [0, 5, 10]
    stretches = sorted(documents.answers.diff().tolist())
    assert stretches == sorted(sum(10 + k - 5 for k in range(g * 3, g * 3 + 3)) for g in range(2))
    assert documents.sizes.tolist() == [10, 5, max(stretches), 10]
    assert batch.input_ids[0, :10].tolist() == [7] * 10
    assert set(batch.input_ids[0, 10:].tolist()) == {8}
    assert batch.position_ids[0, 5:10].tolist() == list(range(5))


def test_groups_of_one_are_whole_documents():
    rows = [row(k, 10 + k, group=k) for k in range(4)]
    (batch,) = pack(rows, layout="shared_documents", max_tokens=1000)
    assert batch.documents.prompts is None
    assert sorted(batch.documents.pieces.diff().tolist()) == [10, 11, 12, 13]


@pytest.mark.parametrize("layout", ["padded", "packed", "documents", "shared_documents"])
def test_what_was_packed_is_what_is_scored(layout):
    source = random.Random(1)
    rows = [
        TrainRow(
            key=k,
            group=k // 2,
            prompt_ids=[10 + k // 2] * (2 + k // 2),
            response_ids=[100 * k + t for t in range(1 + source.randrange(6))],
            mask=[],
        )
        for k in range(8)
    ]
    rows = [
        TrainRow(
            key=r.key,
            group=r.group,
            prompt_ids=r.prompt_ids,
            response_ids=r.response_ids,
            mask=[t % 3 != 1 for t in range(len(r.response_ids))],
        )
        for r in rows
    ]
    seen = {}
    for batch in pack(rows, layout=layout, max_tokens=40):
        flat = batch.input_ids.flatten()
        assert torch.equal(batch.trained, batch.mask.flatten().nonzero().squeeze(1))
        for line, key in enumerate(batch.keys):
            length = len(rows[key].response_ids)
            targets = batch.targets[line, :length].tolist()
            before = flat[batch.sources[line, :length]].tolist()
            assert before == [rows[key].prompt_ids[-1], *targets[:-1]]
            seen[key] = targets
    assert seen == {r.key: list(r.response_ids) for r in rows}
