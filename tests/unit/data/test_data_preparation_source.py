"""Files of a source, chosen, downloaded and streamed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from preparation_files import omr_row, write_jsonl, write_parquet

from workings.data.preparation import json_arrays
from workings.data.preparation.json_arrays import holds_array, stream_array
from workings.data.preparation.source import choose_files, find_source, input_entry, stream_source
from workings.errors import DataError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "README.md": b"---\nlicense: cc-by-4.0\n---\n",
    "data/cot-00000-of-00002.jsonl": b'{"problem": "a"}\n{"problem": "b"}\n',
    "data/cot-00001-of-00002.jsonl": b'{"problem": "c"}\n',
    "data/tir-00000-of-00001.jsonl": b'{"problem": "other"}\n',
}


class Hub(BaseHTTPRequestHandler):
    """The two answers that a data set's files need; `asked` lists the downloads."""

    asked: list[str]

    def do_GET(self) -> None:
        if self.path.startswith("/api/datasets/owner/set"):
            info = {
                "id": "owner/set",
                "sha": COMMIT,
                "cardData": {"license": "cc-by-4.0"},
                "siblings": [{"rfilename": name} for name in FILES],
            }
            self._send(json.dumps(info).encode(), "application/json")
            return
        content = FILES.get(self.path.split(f"/resolve/{COMMIT}/")[-1])
        if content is None:
            self.send_error(404)
            return
        if self.command == "GET":
            self.asked.append(self.path.rsplit("/", 1)[-1])
        self._send(content, "application/octet-stream")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _send(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{abs(hash(content))}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """Nothing: the server's log belongs to no test."""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """The address of a hub on this machine, and the files that were downloaded from it."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OneHub", (Hub,), {"asked": asked}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_files_of_the_hub_are_downloaded_when_their_turn_comes(
    hub: tuple[str, list[str]],
) -> None:
    endpoint, asked = hub
    source = find_source("owner/set", patterns=["data/cot-*.jsonl"], split="cot", endpoint=endpoint)
    assert (source.revision, source.licence) == (COMMIT, "cc-by-4.0")
    rows = stream_source(source)
    assert [next(rows).values, next(rows).values] == [{"problem": "a"}, {"problem": "b"}]
    assert asked == ["cot-00000-of-00002.jsonl"]
    assert [(row.index, row.values) for row in rows] == [(2, {"problem": "c"})]
    assert len(asked) == 2
    assert [row.index for row in stream_source(source)] == [0, 1, 2]
    assert len(asked) == 2  # from the cache


def test_a_limit_downloads_no_further_file(hub: tuple[str, list[str]]) -> None:
    endpoint, asked = hub
    source = find_source("owner/set", patterns=["data/cot-*"], split="cot", endpoint=endpoint)
    assert len(list(stream_source(source, limit=2))) == 2
    assert asked == ["cot-00000-of-00002.jsonl"]


def test_a_hub_that_does_not_answer_is_said_with_the_way_out() -> None:
    with pytest.raises(DataError) as raised:
        find_source("owner/set", patterns=["*"], split="cot", endpoint="http://127.0.0.1:9")
    assert "owner/set cannot be read from the hub" in raised.value.message
    assert "--from PATH" in str(raised.value.hint)


def test_a_folder_is_read_by_pattern_then_by_split(tmp_path: Path) -> None:
    for part, rows in (("cot-0", [1, 2]), ("cot-1", [3]), ("tir-0", [4])):
        write_parquet(tmp_path / f"data/{part}.parquet", [omr_row(n) for n in rows])
    source = find_source(str(tmp_path), patterns=["data/cot-*.parquet"], split="cot")
    read = list(stream_source(source, columns=["problem"]))
    assert [row.index for row in read] == [0, 1, 2]
    assert [set(row.values or {}) for row in read] == [{"problem"}] * 3
    by_split = find_source(str(tmp_path), patterns=["*.jsonl"], split="tir")
    assert [file.name for file in by_split.files] == ["data/tir-0.parquet"]


def test_an_open_choice_lists_the_files() -> None:
    with pytest.raises(DataError, match=r"its data files: a\.parquet, b\.parquet"):
        choose_files(["a.parquet", "b.parquet"], patterns=["c*"], split="train", origin="x")
    assert choose_files(["only.csv"], patterns=["c*"], split="train", origin="x") == ["only.csv"]


def test_a_folder_saved_by_datasets(tmp_path: Path) -> None:
    from datasets import Dataset, DatasetDict

    rows = [omr_row(n) for n in range(5)]
    DatasetDict({"cot": Dataset.from_list(rows), "tir": Dataset.from_list(rows[:1])}).save_to_disk(
        str(tmp_path / "saved")
    )
    source = find_source(str(tmp_path / "saved"), patterns=["data/cot-*"], split="cot")
    assert [row.values for row in stream_source(source)] == rows


def test_a_name_in_the_folder_of_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_jsonl(tmp_path / "mine.jsonl", [{"problem": "a"}])
    monkeypatch.setenv("WORKINGS_DATA_DIR", str(tmp_path))
    source = find_source("mine", patterns=["*"], split="train")
    file = source.files[0]
    path = file.locate()
    entry = input_entry(file, path)
    assert entry["bytes"] == path.stat().st_size == 17
    with pytest.raises(DataError, match="holds no data set 'yours'"):
        find_source("yours", patterns=["*"], split="train")
    with pytest.raises(DataError, match="did you mean 'mine'"):
        find_source("mines", patterns=["*"], split="train")
    with pytest.raises(DataError, match="does not exist"):
        find_source("./yours.jsonl", patterns=["*"], split="train")


def test_broken_rows_keep_their_place(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": \n\n{"a": 3}\n')
    rows = list(stream_source(find_source(str(path), patterns=["*"], split="train")))
    assert [row.values for row in rows] == [{"a": 1}, None, {"a": 3}]
    assert rows[1].place == "line 2"


# ------------------------------------------------------------------------------- arrays in .jsonl

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=6),
    indent=st.sampled_from([None, 0, 2]),
    block=st.integers(1, 40),
)
def test_an_array_in_blocks_gives_what_json_gives(
    rows: list[dict[str, object]],
    indent: int | None,
    block: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("arrays") / "rows.jsonl"
    path.write_text(" \n" + json.dumps(rows, indent=indent) + "\n", encoding="utf-8")
    assert holds_array(path)
    before = json_arrays.BLOCK_CHARACTERS
    json_arrays.BLOCK_CHARACTERS = block + 2
    try:
        assert [row.values for row in stream_array(path)] == rows
    finally:
        json_arrays.BLOCK_CHARACTERS = before


def test_an_array_that_breaks_off_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('[{"a": 1}, 7, {"a": 2')
    rows = stream_array(path)
    assert next(rows).values == {"a": 1}
    assert next(rows).fault == "a int; expected a JSON object"
    with pytest.raises(DataError, match="not a JSON array after row 1"):
        next(rows)
    path.write_text('[{"a": 1} {"a": 2}]')
    with pytest.raises(DataError, match="not a JSON array"):
        list(stream_array(path))
