from __future__ import annotations

import json

import pytest
import torch

import adapters
from tiny import tiny_tokenizer
from workings.data.packed import encode_document
from workings.data.templates import load_template
from workings.errors import DataError
from workings.training.course_data import get_packed_sft_dataset, iterate_batches


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"prompt": f"What is {n}?", "response": f"It is {n}."} for n in range(30)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_sft_windows_of_a_file(file):
    tokenizer = tiny_tokenizer(add_bos=True)
    dataset = get_packed_sft_dataset(tokenizer, file, 32, False)
    ids = [
        token
        for n in range(30)
        for token in encode_document(
            f"What is {n}?", f"It is {n}.", load_template("alpaca"), tokenizer
        )
    ]
    assert len(dataset) == (len(ids) - 1) // 32
    for index in range(len(dataset)):
        item = dataset[index]
        assert set(item) == {"input_ids", "labels"}
        assert item["input_ids"].dtype == item["labels"].dtype == torch.int64
        assert item["input_ids"].tolist() == ids[32 * index : 32 * index + 32]
        assert item["labels"].tolist() == ids[32 * index + 1 : 32 * index + 33]


def test_sft_shuffled_documents_depend_on_the_seed(file):
    tokenizer = tiny_tokenizer()

    def ids(shuffle, seed=0):
        dataset = get_packed_sft_dataset(tokenizer, file, 2000, shuffle, seed=seed)
        return dataset[0]["input_ids"].tolist()

    assert ids(True) == ids(True)
    assert ids(True) != ids(True, seed=1)
    assert ids(True) != ids(False)


def test_sft_too_few_ids_are_an_error(file):
    with pytest.raises(DataError, match="too few for a window of 100000"):
        get_packed_sft_dataset(tiny_tokenizer(), file, 100_000, False)


def test_sft_batches_are_one_epoch_and_the_last_may_be_short():
    items = [{"input_ids": torch.tensor([n])} for n in range(75)]
    batches = adapters.run_iterate_batches(items, 8, False)
    assert len(batches) == 10
    sizes = [len(batch["input_ids"]) for batch in batches]
    assert sizes == [8] * 9 + [3]
    shuffled = torch.cat([b["input_ids"] for b in iterate_batches(items, 8, True, seed=3)]).tolist()
    again = torch.cat([b["input_ids"] for b in iterate_batches(items, 8, True, seed=3)]).tolist()
    assert shuffled == again != [[n] for n in range(75)]
    assert sorted(shuffled) == [[n] for n in range(75)]


def test_sft_adapter_fills_the_published_alpaca_text(file, tmp_path, monkeypatch):
    # A prompt file of the course beside the tests changes nothing: the wording is the same.
    monkeypatch.chdir(tmp_path)
    tokenizer = tiny_tokenizer(add_bos=True)
    text = (
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\nWhat is {n}?\n\n### Response:\nIt is {n}."
    )
    ids = [
        token
        for n in range(30)
        for token in (*tokenizer.encode(text.format(n=n)), tokenizer.eos_token_id)
    ]
    dataset = adapters.get_packed_sft_dataset(tokenizer, file, 64, False)
    assert len(dataset) == (len(ids) - 1) // 64
    found = [token for item in dataset for token in item["input_ids"].tolist()]
    assert found == ids[: len(found)]
