"""A resolved configuration reads back to the same run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from workings.config.compose import compose
from workings.config.dump import dump_yaml, resolved
from workings.config.kinds import RUN_TYPES
from workings.config.sft import SFTConfig
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


# Texts that a reader of YAML, or of interpolations, could take for something else.
AWKWARD = (
    *("", "1e5", "1_0", "0x1f", "1:30", ".inf", "yes", "null", "~", "=", "<<", "2020-01-01"),
    *("${a}", "\\${a}", "\\\\${a}", "a\\", "a\\${b", "{{ x }}", "a: b # c", "- a", "'", '"', "%"),
    *("a\nb\n", "\n", " a ", "a\rb", "\x85", "\u2028", "\ufeff", "\t", "\x00", "é", "😀"),
)


def _run_with(text: str, rate: float = 1e-5, stop: tuple[str, ...] = ()) -> SFTConfig:
    return SFTConfig.model_validate(
        {
            "name": text or "x",
            "model": {"name_or_path": "m", "chat_template": text},
            "data": {"train": {"path": "p", "columns": {text: text}}, "system_prompt": text},
            "optimizer": {"learning_rate": rate},
            "evaluation": {"sampling": {"stop": stop}},
        }
    )


@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_text_survives_the_round_trip(text: str, tmp_path: Path) -> None:
    run = _run_with(text, stop=(text,))
    assert _read_back(dump_yaml(run), "sft", tmp_path) == run


TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from("ab$\\{}'\"?: \n#,=~1"), max_size=12)


@settings(max_examples=20, deadline=None, phases=(Phase.explicit, Phase.generate), derandomize=True)
@given(text=TEXTS.filter("???".__ne__), rate=st.floats(0, 10, allow_nan=False))
def test_any_text_and_number_survives_the_round_trip(text: str, rate: float) -> None:
    run = _run_with(text, rate)
    with tempfile.TemporaryDirectory() as folder:
        assert _read_back(dump_yaml(run), "sft", Path(folder)) == run
