"""Text that every reader of YAML takes for the same values."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from workings.config.yaml_text import yaml_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_plain_yaml_reads_it_back(values: dict[str, Any]) -> None:
    assert yaml.safe_load(yaml_text(values)) == values


@pytest.mark.parametrize("text", ["1e5", "-1e5", "1_0", "0o7", ".5", "+1", "yes", "null", "\x85"])
def test_text_stays_text_for_the_reader_of_configurations(text: str) -> None:
    read = OmegaConf.to_container(OmegaConf.create(yaml_text({"a": text})))
    assert read == {"a": text}


def test_order_numbers_and_lists() -> None:
    text = yaml_text({"b": 1e-05, "a": [1, "x"], "c": {"d": None, "e": True}})
    assert text == "b: 1.0e-05\na:\n- 1\n- x\nc:\n  d: null\n  e: true\n"
