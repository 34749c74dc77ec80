"""A prepared folder: whole or not at all, the same bytes twice, with a card."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from preparation_files import (
    dapo_row,
    omr_row,
    openr1_row,
    prepared,
    read_jsonl,
    words,
    write_jsonl,
    write_parquet,
)

from processes import start_script, wait_until
from workings.data.contamination import ContaminationIndex, OverlapRule, benchmark_questions
from workings.data.preparation.card import card_text
from workings.data.preparation.made import difference, is_made
from workings.data.preparation.prepare import Request, prepare
from workings.data.preparation.recipes import RECIPES
from workings.data.preparation.source import find_source
from workings.data.preparation.tally import Tally
from workings.data.preparation.written import new_folder
from workings.errors import DataError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "dapo.jsonl", [dapo_row(n % 30) for n in range(40)])


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_same_preparation_gives_the_same_bytes(source: Path, tmp_path: Path) -> None:
    prepared("dapo_math", source, tmp_path / "a")
    prepared("dapo_math", source, tmp_path / "b")
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")
    assert set(bytes_of(tmp_path / "a")) == {"README.md", "preparation.json", "train.jsonl"}


def test_parquet_is_the_same_bytes_too(tmp_path: Path) -> None:
    from preparation_files import luffy_row

    rows = [luffy_row(n, f"<think>\n{n}</think> {n}") for n in range(2300)]
    source = write_parquet(tmp_path / "luffy.parquet", rows, row_group_size=77)
    for name in "ab":
        prepared("luffy", source, tmp_path / name)
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")


def test_the_record_holds_counts_and_checksums(source: Path, tmp_path: Path) -> None:
    record = prepared("dapo_math", source, tmp_path / "out")
    assert json.loads((tmp_path / "out/preparation.json").read_text()) == record
    (read,), (written,) = record["inputs"], record["outputs"]
    assert read["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    train = (tmp_path / "out/train.jsonl").read_bytes()
    assert written["sha256"] == hashlib.sha256(train).hexdigest()
    assert written["bytes"] == len(train)
    card = (tmp_path / "out/README.md").read_text()
    for said in (
        *(read["sha256"], written["sha256"], "open-r1/DAPO-Math-17k-Processed", "Apache-2.0"),
        *("| read | 40 |", "| dropped: duplicate | 10 |", "becomes `answer`"),
    ):
        assert said in card
    assert dapo_row(1)["prompt"] not in card


def test_the_card_is_read_by_the_hubs_own_reader(source: Path, tmp_path: Path) -> None:
    from huggingface_hub import DatasetCard

    record: dict[str, Any] = prepared("dapo_math", source, tmp_path / "out")
    card = DatasetCard.load(tmp_path / "out/README.md")
    assert card.data.source_datasets == ["open-r1/DAPO-Math-17k-Processed"]
    files = card.data.configs[0]["data_files"]
    assert files == [{"split": "train", "path": "train.jsonl"}]
    record["source"]["hub_licence"] = "apache-2.0"
    assert 'license: "apache-2.0"\n' in card_text(record)


def test_a_folder_that_exists_stays_unless_it_is_to_be_replaced(
    source: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("mine")
    with pytest.raises(DataError, match="exists") as raised:
        prepared("dapo_math", source, tmp_path / "out")
    assert "--force" in str(raised.value.hint)
    assert bytes_of(tmp_path / "out") == {"mine.txt": b"mine"}
    prepared("dapo_math", source, tmp_path / "out", replace=True)
    assert not (tmp_path / "out/mine.txt").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_is_made_already_is_known(source: Path, tmp_path: Path) -> None:
    recipe = RECIPES["dapo_math"]

    def request(**changes: Any) -> Request:
        return Request(
            **{
                "recipe": recipe,
                "settings": recipe.effective({}),
                "source": find_source(str(source), patterns=["*"], split="train"),
                "target": tmp_path / "out",
                **changes,
            }
        )

    assert not is_made(request())
    prepare(request(), log=lambda _: None)
    assert is_made(request())
    assert not is_made(request(limit=3))
    assert not is_made(request(recipe=RECIPES["luffy"]))
    train = tmp_path / "out/train.jsonl"
    content = train.read_bytes()
    train.write_bytes(content + b"\n")
    assert not is_made(request())
    train.write_bytes(content)
    assert is_made(request())
    source.write_text(source.read_text() + "\n")
    assert not is_made(request())


def luffy_request(tmp_path: Path, **changes: Any) -> Request:
    """A preparation with everything that may be read besides the rows."""
    recipe = RECIPES["openr1_46k"]
    settings = {"exclude": str(tmp_path / "excluded"), "system_prompt": "s.txt"}
    values = {
        "recipe": recipe,
        "settings": recipe.effective({**settings, "tokenizer": str(tmp_path / "tokenizer")}),
        "source": find_source(str(tmp_path / "source"), patterns=["*"], split="train"),
        "target": tmp_path / "out",
        "system_text": "Reason first.",
        "contamination": index_of("Find the end of the world."),
        **changes,
    }
    return Request(**values)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """What `luffy_request` makes, and its inputs beside it."""
    trace = "<think>\nSo.\n</think>\nIt is."
    rows = [openr1_row(n, [(trace, True, True)]) for n in range(4)]
    write_jsonl(tmp_path / "source/a.jsonl", rows)
    write_jsonl(tmp_path / "excluded/a.jsonl", [{"problem": rows[3]["problem"]}])
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer/tokenizer.json").write_text("{}")
    prepare(luffy_request(tmp_path), count_tokens=words, log=lambda _: None)
    return tmp_path


def test_inputs_that_changed_are_told(made: Path) -> None:
    assert difference(luffy_request(made)) is None
    for changes, told in (
        ({"system_text": "Reason last."}, "--system-prompt is not the one in its record"),
        ({"contamination": index_of("Find it.")}, "contamination check is not the one"),
        ({"limit": 9}, "its limit is None, not 9"),
    ):
        assert told in str(difference(luffy_request(made, **changes)))
    for file, told in (
        ("source/a.jsonl", "a.jsonl has changed since it was read"),
        ("source/b.jsonl", "other files would be read (b.jsonl is new)"),
        ("source/0.jsonl", "other files would be read (0.jsonl is new)"),
        ("excluded/a.jsonl", "--exclude: a.jsonl has changed since it was read"),
        ("excluded/b.jsonl", "--exclude: other files would be read (b.jsonl is new)"),
        ("tokenizer/tokenizer.json", "--tokenizer is not the one in its record"),
        ("out/openr1.parquet", "openr1.parquet is not as it was written"),
    ):
        before = (made / file).read_bytes() if (made / file).exists() else None
        (made / file).write_bytes((before or b"") + b"\n")
        assert told in str(difference(luffy_request(made)))
        (made / file).unlink() if before is None else (made / file).write_bytes(before)
    assert difference(luffy_request(made)) is None
    (made / "source/a.jsonl").rename(made / "source/c.jsonl")
    assert "(c.jsonl is new, a.jsonl is gone)" in str(difference(luffy_request(made)))


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("excluded", "does not say what the files of --exclude held"),
        ("system_prompt", "--system-prompt is not the one in its record, or not recorded"),
        ("tokenizer", "--tokenizer is not the one in its record, or not recorded"),
        ("contamination", "contamination check is not the one in its record, or not recorded"),
        ("outputs", "no whole preparation.json"),
    ],
)
def test_an_older_record_is_not_trusted_for_what_it_leaves_out(
    missing: str, told: str, made: Path
) -> None:
    path = made / "out/preparation.json"
    record = json.loads(path.read_text())
    if missing == "contamination":
        del record["contamination"]["asked"]["sha256"]
    else:
        del record[missing]
    path.write_text(json.dumps(record))
    assert told in str(difference(luffy_request(made)))


def test_files_behind_a_limit_do_not_count(tmp_path: Path) -> None:
    """A limit that was reached leaves later files alone; one that was not would read them."""
    write_jsonl(tmp_path / "source/b.jsonl", [dapo_row(n) for n in range(5)])
    recipe = RECIPES["dapo_math"]

    def request(limit: int) -> Request:
        return Request(
            recipe=recipe,
            settings=recipe.effective({}),
            source=find_source(str(tmp_path / "source"), patterns=["*"], split="train"),
            target=tmp_path / f"out{limit}",
            limit=limit,
        )

    for limit in (5, 6):
        prepare(request(limit), log=lambda _: None)
    write_jsonl(tmp_path / "source/c.jsonl", [dapo_row(9)])
    assert difference(request(5)) is None
    assert "c.jsonl is new" in str(difference(request(6)))
    write_jsonl(tmp_path / "source/a.jsonl", [dapo_row(9)])
    assert "a.jsonl is new" in str(difference(request(5)))


def test_a_limit_reads_the_first_rows(source: Path, tmp_path: Path) -> None:
    record = prepared("dapo_math", source, tmp_path / "out", limit=7)
    assert record["rows"]["read"] == 7
    assert record["source"]["limit"] == 7


def test_broken_rows_and_half_characters_are_counted_or_said(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    lines = [json.dumps(dapo_row(n)) for n in range(3)]
    source.write_text("\n".join([lines[0], "{broken", lines[1], "", "[]", lines[2]]))
    record = prepared("dapo_math", source, tmp_path / "out")
    assert record["rows"]["dropped"] == {"unreadable": 2}
    source.write_text(json.dumps(dapo_row(0, data_source="\ud800")))
    with pytest.raises(DataError, match="half of a character"):
        prepared("dapo_math", source, tmp_path / "half")
    assert not (tmp_path / "half").exists()
    assert not (tmp_path / ".half.part").exists()


def test_a_tally_that_loses_a_row_is_a_bug() -> None:
    tally = Tally(read=2)
    tally.drop("a", "row 1")
    with pytest.raises(AssertionError, match="2 rows read, 1 accounted for"):
        tally.check()


# ------------------------------------------------------------------------------------ interrupted


def test_a_killed_preparation_leaves_no_half_file(tmp_path: Path) -> None:
    """kill -9 in the middle of the rows; the next start clears what it left and finishes."""
    process = start_script(
        tmp_path,
        f"""
        import itertools
        from pathlib import Path
        from workings.data.preparation.written import new_folder
        with new_folder(Path({str(tmp_path / "out")!r})) as folder:
            for number in itertools.count():
                folder.write("train.jsonl", {{"id": number, "problem": "x" * 100}})
        """,
    )
    part = tmp_path / ".out.part/train.jsonl"
    try:
        assert wait_until(lambda: part.is_file() and part.stat().st_size > 10_000)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=20)
    assert not (tmp_path / "out").exists()
    assert part.exists()
    source = write_jsonl(tmp_path / "dapo.jsonl", [dapo_row(n) for n in range(3)])
    prepared("dapo_math", source, tmp_path / "out")
    assert len(read_jsonl(tmp_path / "out/train.jsonl")) == 3
    assert not (tmp_path / ".out.part").exists()


def test_an_error_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with new_folder(tmp_path / "out") as folder:
            folder.write("a.jsonl", {"a": 1})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_two_preparations_of_one_folder_do_not_mix(tmp_path: Path) -> None:
    begun, ended = threading.Event(), threading.Event()

    def write() -> None:
        with new_folder(tmp_path / "out") as folder:
            folder.write("a.jsonl", {"a": 1})
            begun.set()
            ended.wait(20)

    other = threading.Thread(target=write)
    other.start()
    assert begun.wait(20)
    with (
        pytest.raises(DataError, match="another process is writing"),
        new_folder(tmp_path / "out"),
    ):
        pass
    ended.set()
    other.join()
    assert (tmp_path / "out/a.jsonl").read_text() == '{"a": 1}\n'


# ---------------------------------------------------------------------------------- contamination


def index_of(*questions: str) -> ContaminationIndex:
    benchmark = benchmark_questions("bench", map(str, range(len(questions))), questions)
    return ContaminationIndex([benchmark], OverlapRule())


def test_contamination_is_reported_or_dropped_before_the_selection(tmp_path: Path) -> None:
    rows = [omr_row(n) for n in range(12)]
    source = write_parquet(tmp_path / "cot-0.parquet", rows)
    index = index_of(rows[2]["problem"].upper(), "Beforehand. " + rows[5]["problem"], "Other.")
    settings = {"size": 10, "held_out": 2}
    told = prepared("omr12k", source, tmp_path / "a", settings=settings, contamination=index)
    assert told["contamination"]["rows_overlapping"] == 2
    report = json.loads((tmp_path / "a/contamination.json").read_text())
    assert report["benchmarks"]["bench"]["questions_by_kind"] == {
        "exact": 1,
        "whole": 0,
        "ngram": 1,
    }
    dropped = prepared(
        *("omr12k", source, tmp_path / "b"),
        settings=settings,
        contamination=index,
        drop_contaminated=True,
    )
    assert dropped["rows"]["dropped"] == {"contaminated": 2}
    parts = [read_jsonl(tmp_path / f"b/{part}.jsonl") for part in ("train", "validation")]
    assert sorted(int(row["id"]) for part in parts for row in part) == [
        0, 1, 3, 4, 6, 7, 8, 9, 10, 11,
    ]  # fmt: skip
    assert "were left out" in (tmp_path / "b/README.md").read_text()
    assert rows[2]["problem"] not in (tmp_path / "a/contamination.json").read_text()
