"""Rows in several places, copies, and the rows that a filter leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workings.data.loading import load_demonstrations, load_problems
from workings.data.places import Place, find_copy, read_places
from workings.data.problems import Form
from workings.errors import DataError


def write(folder: Path, name: str, *rows: dict[str, object]) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def problem(number: int, **more: object) -> dict[str, object]:
    return {"problem": f"{number}?", "answer": str(number), **more}


def test_the_first_complete_copy_is_taken(tmp_path: Path) -> None:
    first, second = Place(path="a+b"), Place(path="c", split="test")
    c = write(tmp_path, "c_test.jsonl", problem(3))
    assert find_copy([first, second], tmp_path) == (second, (c,))
    a, b = write(tmp_path, "a.jsonl", problem(1)), write(tmp_path, "b.jsonl", problem(2))
    assert find_copy([first, second], tmp_path) == (first, (a, b))
    assert find_copy([Place(path="d")], tmp_path) is None
    assert find_copy([], tmp_path) is None


def test_no_folder_of_data_sets_means_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKINGS_DATA_DIR", raising=False)
    assert find_copy([Place(path="a")]) is None


def test_a_copy_goes_before_every_place(tmp_path: Path) -> None:
    write(tmp_path, "mine.jsonl", problem(1))
    local = [Place(path="mine", columns={"question": "problem"})]
    ((table, columns),) = read_places(
        [Place(path="owner/absent"), Place(path="owner/other")],
        local=local,
        name="set",
        data_dir=tmp_path,
    )
    assert (table.name, len(table.rows), columns) == ("set", 1, {"question": "problem"})


def test_several_places_are_one_data_set_with_unique_ids(tmp_path: Path) -> None:
    a = write(tmp_path, "a.jsonl", problem(1), {"problem": "?", "answer": ""})
    b = write(tmp_path, "b.jsonl", {"q": "2?", "gold": 2})
    more = [Place(path=b, columns={"question": "q", "answer": "gold"})]
    loaded = load_problems(a, name="set", more=more, bad_gold="drop")
    assert [p.id for p in loaded.items] == ["set/a/0", "set/b/0"]
    assert [p.answer for p in loaded.items] == ["1", "2"]
    assert (loaded.name, loaded.total, loaded.dropped) == ("set", 3, {"bad_gold": 1})
    assert loaded.origin == f"{a} and {b}"
    assert loaded.positions == (0, 2)


def test_places_of_one_name_are_numbered(tmp_path: Path) -> None:
    x = write(tmp_path, "x/test.jsonl", problem(1))
    y = write(tmp_path, "y/test.jsonl", problem(2))
    loaded = load_problems(x, name="set", more=[Place(path=y)])
    assert [p.id for p in loaded.items] == ["set/0/0", "set/1/0"]


def test_a_split_of_two_parts(tmp_path: Path) -> None:
    write(tmp_path, "set/train.jsonl", problem(1))
    write(tmp_path, "set/test.jsonl", problem(2))
    loaded = load_problems(tmp_path / "set", split="train+test")
    assert [p.answer for p in loaded.items] == ["1", "2"]
    assert [p.id for p in loaded.items] == ["set/0", "set/1"]


def test_filters(tmp_path: Path) -> None:
    rows = [problem(n, year=1990 + n, tag={"kind": "ab"[n % 2]}) for n in range(10)]
    file = write(tmp_path, "x.jsonl", *rows)
    assert len(load_problems(file, where={"year": "1995"}).items) == 1
    assert len(load_problems(file, where={"year": ["1995", "199[0-2]"]}).items) == 4
    loaded = load_problems(file, where={"year": "199*", "tag.kind": "a"})
    assert [p.answer for p in loaded.items] == ["0", "2", "4", "6", "8"]
    assert loaded.origin == f"{file}, where year=199*, tag.kind=a"
    with pytest.raises(DataError, match="none of 10 rows has year=2000"):
        load_problems(file, where={"year": "2000"})
    with pytest.raises(DataError, match="where: unknown column 'yeer'; did you mean 'year'"):
        load_problems(file, where={"yeer": "2000"})


def test_the_order_of_datasets(tmp_path: Path) -> None:
    from datasets import Dataset

    file = write(tmp_path, "x.jsonl", *(problem(n) for n in range(50)))
    loaded = load_problems(file, shuffle_seed=7, limit=20, limit_order="first")
    order = Dataset.from_dict({"n": list(range(50))}).shuffle(seed=7)["n"][:20]
    assert [p.answer for p in loaded.items] == [str(n) for n in order]


def test_rows_that_are_left_out_keep_the_published_order(tmp_path: Path) -> None:
    rows = [problem(n) if n % 3 else {"problem": f"{n}?", "answer": ""} for n in range(30)]
    file = write(tmp_path, "x.jsonl", *rows)
    loaded = load_problems(file, shuffle_seed=7, bad_gold="drop")
    everything = load_problems(
        write(tmp_path, "y.jsonl", *(problem(n) for n in range(30))), shuffle_seed=7
    )
    assert [p.answer for p in loaded.items] == [
        p.answer for p in everything.items if int(p.answer) % 3
    ]


def test_demonstrations_in_several_places(tmp_path: Path) -> None:
    a = write(tmp_path, "a.jsonl", {"prompt": "p", "response": "r"})
    b = write(tmp_path, "b.jsonl", {"prompt": "q", "response": "s", "kind": "x"})
    loaded = load_demonstrations(a, more=[Place(path=b, where={"kind": "x"})], shuffle_seed=0)
    assert sorted(row.response for row in loaded.items) == ["r", "s"]


def test_what_has_no_effect_on_generated_problems() -> None:
    with pytest.raises(DataError, match="where and form have no effect on arithmetic"):
        load_problems("arithmetic", where={"a": "b"}, form=Form(answers="none"))
