"""No path leads out of the folder, nothing hidden is shown, and the newest come first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from viewer_files import results_row, write_jsonl, write_rollouts

from workings.errors import DataError, Forbidden, NotFound
from workings.viewer.files import inside, list_result_files, load_result_file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    write_jsonl(folder / "a/sums/results.jsonl", [results_row(f"p/{n}") for n in range(5)])
    write_rollouts(folder / "b/rollouts/step_000003.parquet", [[1.0, 0.0]])
    write_jsonl(tmp_path / "secret/results.jsonl", [results_row("secret")])
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "../secret/results.jsonl",
        "a/../../secret/results.jsonl",
        "a/../a/sums/results.jsonl",
        "/etc/passwd",
        "..",
        "..\\secret\\results.jsonl",
        "a\x00/results.jsonl",
        ".git/results.jsonl",
        "a/.hidden/results.jsonl",
    ],
)
def test_a_path_out_of_the_folder_is_forbidden(root: Path, name: str) -> None:
    with pytest.raises(Forbidden):
        load_result_file(root, name)
    with pytest.raises(Forbidden):
        list_result_files(root, name)


def test_links_out_of_the_folder_are_forbidden(root: Path) -> None:
    secret = root.parent / "secret"
    (root / "linked").symlink_to(secret)
    (root / "a/linked.jsonl").symlink_to(secret / "results.jsonl")
    (root / "round").symlink_to(root / "round")
    for name in ("linked", "linked/results.jsonl", "a/linked.jsonl"):
        with pytest.raises(Forbidden, match="symbolic link"):
            inside(root, name)
    with pytest.raises(Forbidden):
        load_result_file(root, "linked/results.jsonl")
    with pytest.raises(Forbidden):
        list_result_files(root, "linked")
    with pytest.raises(NotFound):
        inside(root, "round")
    assert not any("linked" in name for name in list_result_files(root))


def test_a_result_behind_a_link_is_not_listed(root: Path) -> None:
    (root / "c").mkdir()
    (root / "c/results.jsonl").symlink_to(root.parent / "secret/results.jsonl")
    (root / "d").mkdir()
    (root / "d/results.jsonl").symlink_to(root / "a/sums/results.jsonl")
    listed = list_result_files(root)
    assert "c/results.jsonl" not in listed
    assert "d/results.jsonl" in listed


def test_a_root_that_is_a_link_is_followed(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    assert list_result_files(link) == list_result_files(root)
    assert len(load_result_file(link, "a/sums/results.jsonl")) == 5


def test_missing_files_and_other_files(root: Path) -> None:
    with pytest.raises(NotFound):
        load_result_file(root, "a/sums/none.jsonl")
    with pytest.raises(NotFound, match="is no file"):
        load_result_file(root, "a/sums")
    with pytest.raises(NotFound):
        list_result_files(root, "nowhere")
    (root / "notes.txt").write_text("x")
    with pytest.raises(DataError, match=r"\.jsonl, \.json or \.parquet"):
        load_result_file(root, "notes.txt")
    with pytest.raises(DataError, match="offset -1"):
        load_result_file(root, "a/sums/results.jsonl", offset=-1)


def test_newest_first_without_hidden_ones_and_checkpoints(root: Path) -> None:
    for name in (".hidden/x", "a/checkpoints/step_000001", "c/sums"):
        write_jsonl(root / name / "results.jsonl", [results_row("p")])
    write_rollouts(root / "d/sums/responses.parquet", [[1.0]])
    write_rollouts(root / "c/sums/responses.parquet", [[1.0]])  # beside results.jsonl: not listed
    ages = {
        "a/sums/results.jsonl": 30,
        "b/rollouts/step_000003.parquet": 10,
        "c/sums/results.jsonl": 20,
        "d/sums/responses.parquet": 40,
    }
    for name, age in ages.items():
        os.utime(root / name, (1e9 - age, 1e9 - age))
    assert list_result_files(root) == sorted(ages, key=ages.__getitem__)
    assert list_result_files(root, "c") == ["c/sums/results.jsonl"]


def test_rows_are_loaded_from_an_offset(root: Path) -> None:
    rows = load_result_file(root, "a/sums/results.jsonl", offset=3, limit=10)
    assert [row["problem_id"] for row in rows] == ["p/3", "p/4"]
    assert load_result_file(root, "a/sums/results.jsonl", offset=9) == []
    assert load_result_file(root, "b/rollouts/step_000003.parquet")[1]["reward"] == 0.0
