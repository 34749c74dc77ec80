"""Finding rows: files, folders, names in the folder of data sets, and the hub."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workings.data.sources import DATA_DIR_VARIABLE, read_hub, read_rows
from workings.data.table import table_of
from workings.errors import DataError


def jsonl(path: Path, *numbers: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"a": n}) + "\n" for n in numbers))
    return path


def numbers(path: str | Path, **kwargs: object) -> list[object]:
    return [row["a"] for row in read_rows(path, **kwargs).rows]  # type: ignore[arg-type]


def test_a_file(tmp_path: Path) -> None:
    table = read_rows(str(jsonl(tmp_path / "train.jsonl", 1, 2)))
    assert (table.name, table.columns) == ("train", ("a",))
    assert table.origin.endswith("train.jsonl")


def test_a_folder_of_split_files(tmp_path: Path) -> None:
    jsonl(tmp_path / "train.jsonl", 1)
    jsonl(tmp_path / "data" / "test-00000-of-00002.jsonl", 2)
    jsonl(tmp_path / "data" / "test-00001-of-00002.jsonl", 3)
    assert numbers(tmp_path) == [1]
    assert numbers(tmp_path, split="test") == [2, 3]


def test_a_folder_with_subsets(tmp_path: Path) -> None:
    jsonl(tmp_path / "algebra" / "train.jsonl", 1)
    jsonl(tmp_path / "geometry" / "train.jsonl", 2)
    assert numbers(tmp_path, subset="geometry") == [2]
    with pytest.raises(DataError, match="unknown subset 'algbra'; did you mean 'algebra'"):
        read_rows(tmp_path, subset="algbra")


def test_folders_saved_by_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    one = datasets.Dataset.from_list([{"a": 1}, {"a": 2}])
    one.save_to_disk(str(tmp_path / "one"))
    both = datasets.DatasetDict({"train": one, "test": datasets.Dataset.from_list([{"a": 3}])})
    both.save_to_disk(str(tmp_path / "both"))
    assert numbers(tmp_path / "one") == [1, 2]
    assert numbers(tmp_path / "both", split="test") == [3]
    with pytest.raises(DataError, match="unknown split 'tset'; did you mean 'test'"):
        read_rows(tmp_path / "both", split="tset")


def test_a_name_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jsonl(tmp_path / "gsm8k_train.jsonl", 1)
    jsonl(tmp_path / "gsm8k_test.jsonl", 2)
    jsonl(tmp_path / "folder" / "train.jsonl", 3)
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path))
    assert numbers("gsm8k_train") == [1]
    assert numbers("gsm8k", split="test") == [2]
    assert numbers("folder") == [3]
    with pytest.raises(DataError, match="unknown data set 'gsm8k_tran'; did you mean 'gsm8k_train"):
        read_rows("gsm8k_tran")


def test_a_name_without_a_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)
    with pytest.raises(DataError, match="'gsm8k' is neither a file nor a folder") as raised:
        read_rows("gsm8k")
    assert raised.value.hint is not None
    assert "owner/name" in raised.value.hint


def test_a_data_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        read_rows("gsm8k", data_dir=tmp_path / "none")


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    jsonl(tmp_path / "train.jsonl", 1)
    with pytest.raises(DataError, match="does not exist") as raised:
        read_rows(str(tmp_path / "trian.jsonl"))
    assert raised.value.hint == f"did you mean {tmp_path / 'train.jsonl'}?"
    with pytest.raises(DataError, match="does not exist") as raised:
        read_rows("./no/such/folder.jsonl")
    assert raised.value.hint == "its folder no/such does not exist either"


def test_a_folder_without_the_split(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds no data file; expected files such as train\.parq"):
        read_rows(tmp_path / "empty")
    jsonl(tmp_path / "some" / "validation.jsonl", 1)
    with pytest.raises(DataError, match="unknown split 'train'; Known: validation"):
        read_rows(tmp_path / "some")


def test_an_empty_data_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no rows"):
        read_rows(jsonl(tmp_path / "a.jsonl"))


def test_a_file_has_no_subset(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is one file, so it has no subset 'main'"):
        read_rows(jsonl(tmp_path / "a.jsonl", 1), subset="main")


def test_the_index_of_pandas_is_not_a_column() -> None:
    table = table_of([{"a": 1, "__index_level_0__": 7}], name="x", origin="x")
    assert (table.columns, list(table.rows)) == (("a",), [{"a": 1}])


def test_the_hub_reader_on_a_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = pytest.importorskip("datasets").config
    monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "cache")
    jsonl(tmp_path / "repo" / "train.jsonl", 1, 2)
    jsonl(tmp_path / "repo" / "test.jsonl", 3)
    assert read_hub(str(tmp_path / "repo"), None, "test") == [{"a": 3}]
    with pytest.raises(DataError, match=r"split 'nope' of .* cannot be loaded"):
        read_hub(str(tmp_path / "repo"), None, "nope")


def test_an_unreachable_hub_id_says_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")

    def offline(*_: object, **__: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(DataError, match="ConnectionError: no network") as raised:
        read_rows("owner/name", subset="main")
    assert "no local file or folder 'owner/name'" in str(raised.value)
