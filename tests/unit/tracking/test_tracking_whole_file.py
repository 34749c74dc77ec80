"""A file is written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from workings.tracking.whole_file import write_whole


def test_the_new_text_takes_the_place_of_the_old(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_whole(file, "old\n")
    write_whole(file, "half an emoji \ud83d, né\n")
    assert file.read_bytes() == "half an emoji ?, né\n".encode()
    assert list(tmp_path.iterdir()) == [file]


def test_a_write_that_is_cut_off_leaves_the_old_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.json"
    write_whole(file, "old")

    def cut_off(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", cut_off)
    with pytest.raises(KeyboardInterrupt):
        write_whole(file, "new")
    assert file.read_text() == "old"
