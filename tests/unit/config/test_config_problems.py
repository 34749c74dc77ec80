"""What is wrong with a value, in one line."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from workings.config.kinds import RUN_TYPES
from workings.config.problems import explain


def _explain(values: dict[str, Any], kind: str) -> str:
    base: dict[str, Any] = {
        "sft": {"name": "x", "model": {"name_or_path": "m"}, "data": {"train": {"path": "p"}}},
        "eval": {"name": "x", "model": {"name_or_path": "m"}, "datasets": [{"path": "p"}]},
    }[kind]
    with pytest.raises(ValidationError) as caught:
        RUN_TYPES[kind].model_validate({**base, **values})
    return str(explain(caught.value, kind))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_size": "many"}, "batch_size='many'; expected a whole number, at least 1"),
        (
            {"batch": {"microbatch_tokens": 0}},
            "batch.microbatch_tokens=0; expected auto or a whole number, at least 1",
        ),
        (
            {"batch": {"microbatch_tokens": "big"}},
            "batch.microbatch_tokens='big'; expected auto or a whole number, at least 1",
        ),
        ({"batch_size": 0}, "batch_size=0; expected a whole number, at least 1"),
        ({"batch_size": 1.5}, "batch_size=1.5; expected a whole number, at least 1"),
        ({"batch_size": None}, "batch_size=null; expected a whole number, at least 1"),
        ({"epochs": 0}, "epochs=0; expected a number, above 0"),
        ({"name": 5}, "name=5; expected text"),
        ({"loss": "mse"}, "loss='mse'; expected one of nll, seq_sum, dft"),
        (
            {"trained_tokens": "some"},
            "trained_tokens='some'; expected one of completion, assistant, all",
        ),
        (
            {"model": {"name_or_path": "m", "trust_remote_code": "maybe"}},
            "model.trust_remote_code='maybe'; expected true or false",
        ),
        ({"optimizer": {"betas": [0.9]}}, "optimizer.betas=[0.9]; expected a list of 2 numbers"),
        (
            {"optimizer": {"betas": [0.9, "x"]}},
            "optimizer.betas.1='x'; expected a number",
        ),
        (
            {"data": {"train": {"path": "p", "options": {"a": {"b": 1}}}}},
            "data.train.options.a={'b': 1}; expected text, a whole number, a number, true or "
            "false, a list of whole numbers or a list of texts",
        ),
        (
            {"data": {"train": {"path": "p", "columns": {"question": 3}}}},
            "data.train.columns.question=3; expected text",
        ),
        (
            {"reward": {"weights": {"answer": "x"}}},
            "reward.weights.answer='x'; expected a number",
        ),
        ({"reward": {"weights": [1]}}, "reward.weights=[1]; expected a mapping"),
        (
            {"model": {"name_or_path": "m", "lora": {"targets": []}}},
            "model.lora.targets=[]; expected a list of texts, with at least 1 entry",
        ),
        (
            {"grader": "fast"},
            "grader='fast'; expected a section with num_workers, deadline_seconds, store",
        ),
        ({"data": {}}, "data.train is not set; expected a section with path, subset, split, "
         "columns, where, name, limit, limit_order, options, more, local, shuffle_seed, repeats, "
         "answers, distractors, wording, problems, counted, bad_gold, note"),
        ({"data": {"train": {}}}, "data.train.path is not set; expected text"),
    ],
)  # fmt: skip
def test_one_problem_of_a_run(values: dict[str, Any], message: str) -> None:
    assert _explain(values, "sft") == message


def test_an_unknown_key_has_a_hint() -> None:
    assert _explain({"model": {"name_or_path": "m", "dtyp": "auto"}}, "sft") == (
        "unknown key 'model.dtyp'; did you mean 'model.dtype'?\n\n"
        "hint: `workings sft --help` lists every setting"
    )


def test_entries_of_a_list_of_sections_are_numbered() -> None:
    assert _explain({"datasets": [{"path": "p"}, {"limit": 0}]}, "eval") == (
        "2 settings cannot be used:\n"
        "  datasets.1.path is not set; expected text\n"
        "  datasets.1.limit=0; expected a whole number, at least 1, or null"
    )
    assert _explain({"datasets": []}, "eval") == (
        "datasets=[]; expected a list of sections, with at least 1 entry"
    )


def test_a_long_value_is_cut() -> None:
    message = _explain({"batch_size": "x" * 200}, "sft")
    assert message == f"batch_size='{'x' * 76}...; expected a whole number, at least 1"
