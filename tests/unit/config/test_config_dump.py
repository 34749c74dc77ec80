"""A resolved configuration reads back to the same run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from workings.config.compose import compose
from workings.config.dump import dump_yaml, resolved
from workings.config.run import RUN_TYPES, SFTConfig
from workings.config.sources import shipped_names

SHIPPED = [(kind, name) for kind in RUN_TYPES for name in shipped_names(kind)]


def _read_back(text: str, kind: str, folder: Path) -> Any:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return compose([str(path)], kind=kind)


@pytest.mark.parametrize(("kind", "name"), SHIPPED)
def test_every_shipped_run_survives_the_round_trip(kind: str, name: str, tmp_path: Path) -> None:
    run = compose([name], kind=kind)
    text = dump_yaml(run)
    again = _read_back(text, kind, tmp_path)
    assert again == run
    assert dump_yaml(again) == text


def test_every_setting_is_there_and_the_kind_comes_first() -> None:
    run = compose(["quickstart"], kind="grpo")
    values = yaml.safe_load(dump_yaml(run))
    assert next(iter(values)) == "kind"
    assert values == resolved(run)
    assert values["optimizer"]["learning_rate"] == run.optimizer.learning_rate
    assert values["model"]["lora"] is None
    assert values["evaluation"]["sampling"]["temperature"] == 0


TEXT = st.text(st.sampled_from("ab$\\{}'\"?: \n#é,=~1") | st.characters(codec="utf-8"), max_size=20)


@settings(max_examples=25, deadline=None)
@given(
    prompt=TEXT.filter(lambda text: text != "???"),
    rate=st.floats(0, 10, allow_nan=False),
    stop=st.lists(TEXT.filter(lambda text: text != "???"), max_size=2),
)
def test_any_text_and_number_survives_the_round_trip(
    prompt: str, rate: float, stop: list[str]
) -> None:
    run = SFTConfig.model_validate(
        {
            "name": "x",
            "model": {"name_or_path": "m", "chat_template": prompt},
            "data": {"train": {"path": "p"}, "system_prompt": prompt},
            "optimizer": {"learning_rate": rate},
            "evaluation": {"sampling": {"stop": stop}},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        assert _read_back(dump_yaml(run), "sft", Path(folder)) == run
