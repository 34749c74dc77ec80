from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny import tiny_tokenizer
from workings.data.packed import encode_document, pack_documents, read_documents
from workings.data.templates import PromptTemplate, load_template
from workings.errors import DataError, TemplateError

PLAIN = PromptTemplate(name="plain", before="Q ", after=" A ")


@pytest.mark.parametrize(
    ("num_ids", "length", "count"), [(11, 4, 2), (9, 4, 2), (8, 4, 1), (4, 4, 0), (2431, 32, 75)]
)
def test_the_count_of_windows(num_ids, length, count):
    windows = pack_documents([list(range(num_ids))], length)
    assert windows.input_ids.shape == windows.labels.shape == (count, length)


def test_mutation_a_last_window_without_its_last_label_is_dropped():
    """len // length would give 2 windows of 8 ids, the second one label short."""
    windows = pack_documents([[0, 1, 2, 3], [4, 5, 6, 7]], 4)
    assert windows.input_ids.tolist() == [[0, 1, 2, 3]]
    assert windows.labels.tolist() == [[1, 2, 3, 4]]


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=7), min_size=1, max_size=9),
    st.integers(1, 6),
)
def test_windows_are_cut_from_the_documents_end_to_end(documents, length):
    ids = [token for document in documents for token in document]
    windows = pack_documents(documents, length)
    assert windows.input_ids.dtype == windows.labels.dtype == np.int64
    for index, (inputs, labels) in enumerate(zip(windows.input_ids, windows.labels, strict=True)):
        start = index * length
        assert inputs.tolist() == ids[start : start + length]
        assert labels.tolist() == ids[start + 1 : start + length + 1]
    assert len(ids) - (len(windows.input_ids) * length + 1) < length


def test_documents_are_shuffled_and_not_chunks():
    documents = [[10 * d + t for t in range(3)] for d in range(8)]
    windows = pack_documents(documents, 23, shuffle=True, seed=1)
    ids = [*windows.input_ids[0].tolist(), int(windows.labels[0, -1])]
    found = [ids[start : start + 3] for start in range(0, 24, 3)]
    assert found != documents
    assert sorted(found) == documents
    again = pack_documents(documents, 23, shuffle=True, seed=1)
    assert again.input_ids.tolist() == windows.input_ids.tolist()
    other = pack_documents(documents, 23, shuffle=True, seed=2)
    assert other.input_ids.tolist() != windows.input_ids.tolist()


def test_a_document_is_one_text_with_bos_and_eos():
    tokenizer = tiny_tokenizer(add_bos=True)
    ids = encode_document("he", "llo", PLAIN, tokenizer)
    assert ids == [*tokenizer.encode("Q he A llo"), tokenizer.eos_token_id]
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.bos_token_id not in ids[1:]
    joined = encode_document("", "hello", PromptTemplate(name="bare"), tiny_tokenizer())
    assert joined == [*tiny_tokenizer().encode("hello"), tokenizer.eos_token_id]


def test_eos_stands_once():
    tokenizer = tiny_tokenizer()
    ids = encode_document("a", "b<|im_end|>", PLAIN, tokenizer)
    assert ids.count(tokenizer.eos_token_id) == 1


def test_the_newline_that_ends_the_template_file_is_not_trained(tmp_path):
    file = tmp_path / "alpaca_sft.prompt"
    file.write_text("### Instruction:\n{instruction}\n\n### Response:\n{response}\n")
    tokenizer = tiny_tokenizer()
    ids = encode_document("a", "b", load_template(str(file)), tokenizer)
    assert tokenizer.decode(ids[:-1]) == "### Instruction:\na\n\n### Response:\nb"
    shipped = encode_document("a", "b", load_template("alpaca"), tokenizer)
    assert tokenizer.decode(shipped).endswith("### Response:\nb<|im_end|>")


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_rows_of_a_file(tmp_path, name):
    rows = [{"prompt": "a", "response": "b"}, {"prompt": "c", "response": "d", "more": 1}]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "wt") as file:
        file.write(text)
    tokenizer = tiny_tokenizer()
    assert read_documents(tmp_path / name, PLAIN, tokenizer) == [
        encode_document("a", "b", PLAIN, tokenizer),
        encode_document("c", "d", PLAIN, tokenizer),
    ]


def test_what_is_refused(tmp_path):
    tokenizer = tiny_tokenizer()
    with pytest.raises(DataError, match="windows of 0 ids"):
        pack_documents([[1, 2]], 0)
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="holds no rows"):
        read_documents(tmp_path / "empty.jsonl", PLAIN, tokenizer)
    (tmp_path / "other.jsonl").write_text('{"question": "a", "answer": "b"}\n')
    with pytest.raises(
        DataError, match="row 0: expected the texts 'prompt' and 'response'; it has"
    ):
        read_documents(tmp_path / "other.jsonl", PLAIN, tokenizer)
    (tmp_path / "bad.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match="cannot be read as JSONL"):
        read_documents(tmp_path / "bad.jsonl.gz", PLAIN, tokenizer)
    with gzip.open(tmp_path / "list.jsonl.gz", "wt") as file:
        file.write("[1]\n")
    with pytest.raises(DataError, match="expected a JSON object on every line"):
        read_documents(tmp_path / "list.jsonl.gz", PLAIN, tokenizer)
    with pytest.raises(TemplateError, match="has mode 'chat'"):
        encode_document("a", "b", load_template("own"), tokenizer)
    tokenizer.eos_token = None
    with pytest.raises(TemplateError, match="no EOS token"):
        encode_document("a", "b", PLAIN, tokenizer)
