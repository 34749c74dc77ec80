"""The choice of an engine and its reasons."""

from __future__ import annotations

import pytest

from workings.errors import EngineError
from workings.rollout import select
from workings.rollout.select import choose_engine, rows_at_once


def test_auto_on_a_cpu_is_transformers() -> None:
    assert choose_engine("auto", "cpu") == ("transformers", "it samples any model on a CPU")


def test_auto_on_a_card_is_paged_where_it_knows_the_model() -> None:
    choice = choose_engine("auto", "cuda:1")
    assert choice.name == "paged"
    assert "cuda:1" in choice.reason


def test_auto_on_a_card_says_why_it_is_not_paged() -> None:
    choice = choose_engine("auto", "cuda", not_paged="it has sliding windows")
    assert choice.name in ("vllm", "transformers")
    assert "it has sliding windows" in choice.reason


def test_auto_takes_vllm_for_one_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "find_spec", lambda name: object())
    assert choose_engine("auto", "cuda", not_paged="it is new").name == "vllm"
    assert choose_engine("auto", "cuda", not_paged="it is new", num_ranks=2).name == "transformers"


def test_rows_at_once_are_as_configured_or_as_the_device_bears() -> None:
    assert rows_at_once(7, "auto", "cuda") == 7
    assert rows_at_once(None, "paged", "cuda:1") == 1024
    assert rows_at_once(None, "auto", "cpu") == rows_at_once(None, "hf", "cuda") == 128


def test_hf_is_an_alias() -> None:
    assert choose_engine("hf", "cpu").name == "transformers"
    assert "hf" in choose_engine("hf", "cpu").reason


@pytest.mark.parametrize("name", ["vllm", "server"])
def test_vllm_and_server_are_taken_as_configured(name: str) -> None:
    assert choose_engine(name, "cuda") == (name, "as configured")


def test_scripted_is_taken_as_configured() -> None:
    assert choose_engine("scripted", "cpu") == ("scripted", "as configured")


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(EngineError, match="did you mean 'transformers'"):
        choose_engine("transformer", "cpu")
