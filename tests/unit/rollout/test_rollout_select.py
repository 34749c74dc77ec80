"""The choice of an engine and its reasons."""

from __future__ import annotations

import pytest

from workings.errors import EngineError
from workings.rollout.select import choose_engine


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1"])
def test_auto_is_transformers_and_says_why(device: str) -> None:
    choice = choose_engine("auto", device)
    assert choice.name == "transformers"
    assert choice.reason


def test_hf_is_an_alias() -> None:
    assert choose_engine("hf", "cpu").name == "transformers"
    assert "hf" in choose_engine("hf", "cpu").reason


def test_scripted_is_taken_as_configured() -> None:
    assert choose_engine("scripted", "cpu") == ("scripted", "as configured")


@pytest.mark.parametrize("name", ["paged", "vllm", "server"])
def test_engines_that_come_later_say_so(name: str) -> None:
    with pytest.raises(EngineError, match="comes later") as caught:
        choose_engine(name, "cuda")
    assert "engine.name=transformers" in str(caught.value.hint)


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(EngineError, match="did you mean 'transformers'"):
        choose_engine("transformer", "cpu")
