"""Names, files and groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from workings.config.kinds import RUN_TYPES
from workings.config.objective import PRESETS
from workings.config.sources import (
    check_choice,
    choices_of,
    group_of,
    is_group,
    kind_of,
    read_source,
    shipped_folder,
    shipped_names,
)
from workings.errors import ConfigError


def _error(name: str, kind: str = "grpo") -> str:
    with pytest.raises(ConfigError) as caught:
        read_source(name, kind)
    return str(caught.value)


def test_shipped_runs_by_kind() -> None:
    sft = ["cs336_sft", "exp_sft_omr12k", "exp_sft_omr2048_12k", "exp_sft_omr4096_12k"]
    assert shipped_names("sft") == [*sft, "quickstart", "sft"]
    assert {"cs336_grpo", "dapo", "exgrpo", "grpo", "luffy"} <= set(shipped_names("grpo"))
    assert shipped_names("grpo") == sorted(shipped_names("grpo"))
    assert shipped_names("pipeline") == ["pipeline", "quickstart", "tags_pipeline"]
    assert shipped_names("eval") == ["cs336_baseline", "eval"]


@pytest.mark.parametrize("kind", ["sft", "grpo", "pipeline"])
def test_one_name_may_stand_for_a_run_of_each_kind(kind: str) -> None:
    source = read_source("quickstart", kind)
    assert source.kind == kind
    assert source.folder == shipped_folder()


def test_a_file_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("defaults: [{model: smollm2}, {tracker: wandb}, _self_]\nmax_steps: 3\n")
    source = read_source(str(path), "grpo")
    assert source.body == {"max_steps": 3}
    assert source.folder == tmp_path
    assert source.kind is None
    assert source.defaults == ({"model": "smollm2"}, {"tracker@tracking": "wandb"}, "_self_")


def test_the_section_of_a_group_is_written_out_with_its_words(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("defaults: [{override /tracker: wandb}, {tracker@x: wandb}]\n")
    assert read_source(str(path), "grpo").defaults == (
        {"override /tracker@tracking": "wandb"},
        {"tracker@x": "wandb"},
    )


def test_a_number_keeps_its_value(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("a: 1e-5\nb: 0\nc: ${a}\nd: null\n")
    assert read_source(str(path), "grpo").body == {"a": 1e-5, "b": 0, "c": "${a}", "d": None}


def test_the_kind_of_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("kind: eval\n")
    assert kind_of(str(path)) == "eval"
    assert kind_of("grpo") == "grpo"
    assert kind_of("cs336_grpo") == "grpo"
    assert kind_of("quickstart") == "sft"
    path.write_text("name: x\n")
    with pytest.raises(ConfigError) as caught:
        kind_of(str(path))
    assert str(caught.value) == (
        f"{path} does not say which kind of run it is\n\n"
        f"hint: add a line such as kind: grpo (known: {', '.join(RUN_TYPES)})"
    )


def test_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _error("grop") == (
        "unknown grpo configuration 'grop'; did you mean 'grpo'? "
        f"Known: {', '.join(shipped_names('grpo'))}\n\n"
        "hint: a file of your own is given with its ending, e.g. -c my_run.yaml"
    )
    assert _error("gone.yaml") == (
        "configuration file gone.yaml does not exist\n\nhint: there is no configuration file in ."
    )
    (tmp_path / "mine.yaml").write_text("[1, 2]\n")
    assert _error("gone.yaml") == (
        "configuration file gone.yaml does not exist\n\nhint: the folder . has mine.yaml"
    )
    assert _error("mine") == (
        f"unknown grpo configuration 'mine'; Known: {', '.join(shipped_names('grpo'))}\n\n"
        "hint: for the file, write -c mine.yaml"
    )
    assert _error("mine.yaml") == "mine.yaml holds [1, 2]; expected keys with values"
    (tmp_path / "mine.yaml").write_text("defaults: grpo\n")
    assert _error("mine.yaml") == (
        "mine.yaml: 'defaults' is 'grpo'; expected a list such as [model: x]"
    )
    (tmp_path / "mine.yaml").write_text("a: [1\n")
    assert _error("mine.yaml").startswith("mine.yaml is not valid YAML: while parsing")
    (tmp_path / "mine.yaml").write_bytes(b"a: \xff\n")
    assert _error("mine.yaml").startswith("mine.yaml cannot be read: ")
    (tmp_path / "rows.jsonl").write_text("{}")
    assert _error("./rows.jsonl") == "rows.jsonl is not a configuration; expected a .yaml file"
    assert _error("model").startswith("unknown grpo configuration 'model'")
    assert _error("").startswith("unknown grpo configuration ''")


def test_groups(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "own.yaml").write_text("")
    folders = [tmp_path, shipped_folder()]
    assert "own" in choices_of("model", folders)
    assert "smollm2" in choices_of("model", folders)
    assert is_group("model", folders)
    assert not is_group("optimizer", folders)
    assert not is_group("", folders)
    check_choice("model", "own", folders)
    with pytest.raises(ConfigError) as caught:
        check_choice("objective", "grop", [shipped_folder()])
    assert str(caught.value) == (
        "unknown objective 'grop'; did you mean 'grpo'? "
        f"Known: {', '.join(sorted(PRESETS))}\n\n"
        "hint: anything else is set as objective.preset=grop"
    )


def test_an_entry_of_a_defaults_list() -> None:
    assert group_of({"override /model@sft.model": "x"}) == ("model", "x")
    assert group_of({"optional data": None}) == ("data", None)
    assert group_of("grpo") is None
    assert group_of({"a": 1, "b": 2}) is None
